"""Where secrets usually lie: what a sandbox does not show and a file tool refuses.

Below a home the list holds whether or not the place exists, so that one that appears later is hidden too.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping
from pathlib import Path

HOME_SECRETS = (
    # keys, logins, password stores
    ".ssh",
    ".gnupg",
    ".pki",
    ".netrc",
    "_netrc",
    ".authinfo",
    ".authinfo.gpg",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".kde/share/apps/kwallet",
    ".config/keepassxc",
    ".config/Bitwarden",
    ".config/Bitwarden CLI",
    ".config/1Password",
    ".config/op",
    ".config/sops",
    ".config/age",
    ".vault-token",
    ".Xauthority",
    ".ICEauthority",
    "Library/Keychains",
    # git and forges
    ".git-credentials",
    ".config/git/credentials",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/tea",
    # clouds
    ".aws",
    ".azure",
    ".config/gcloud",
    ".gsutil",
    ".boto",
    ".s3cfg",
    ".oci",
    ".bluemix",
    ".config/doctl",
    ".config/hcloud",
    ".config/linode-cli",
    ".config/rclone",
    ".config/fly",
    ".fly",
    ".config/netlify",
    ".config/heroku",
    ".config/vercel",
    ".local/share/com.vercel.cli",
    ".wrangler",
    ".config/.wrangler",
    ".terraform.d",
    ".terraformrc",
    ".pulumi",
    # containers and clusters; their sockets too
    ".docker",
    ".config/containers",
    ".kube",
    ".minikube",
    ".colima",
    ".lima",
    ".orbstack",
    ".rd",
    # packages
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".pypirc",
    ".config/pypirc",
    ".config/pip",
    ".pip",
    ".config/uv",
    ".local/share/uv/credentials",
    ".config/pypoetry/auth.toml",
    ".config/hatch",
    ".condarc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".bundle/config",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".sbt/.credentials",
    ".ivy2/.credentials",
    ".nuget/NuGet",
    ".config/NuGet",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".hex",
    # databases
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".mongorc.js",
    # models and other agents
    ".huggingface",
    ".cache/huggingface/token",
    ".cache/huggingface/stored_tokens",
    ".kaggle",
    ".config/openai",
    ".config/anthropic",
    ".config/io.datasette.llm",
    ".config/github-copilot",
    ".anthropic",
    ".openai",
    ".claude",
    ".claude.json",
    ".codex",
    ".gemini",
    ".cursor",
    ".local/share/opencode",
    ".aider.conf.yml",
    ".config/bullpen",
    # what was typed
    ".bash_history",
    ".zsh_history",
    ".zhistory",
    ".histfile",
    ".local/share/fish",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
    ".sqlite_history",
    ".rediscli_history",
    ".lesshst",
    ".viminfo",
    # browsers and mail
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".config/opera",
    ".var/app",
    "snap/firefox",
    "snap/chromium",
    ".config/Signal",
    ".config/Slack",
    ".config/discord",
    "Library/Application Support",
    "Library/Cookies",
)

# Variables that move such a place elsewhere.
POINTERS = (
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AZURE_CONFIG_DIR",
    "BOTO_CONFIG",
    "CLAUDE_CONFIG_DIR",
    "CLOUDSDK_CONFIG",
    "CODEX_HOME",
    "DOCKER_CERT_PATH",
    "DOCKER_CONFIG",
    "GH_CONFIG_DIR",
    "GNUPGHOME",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "HF_TOKEN_PATH",
    "KRB5CCNAME",
    "KUBECONFIG",
    "NETRC",
    "NPM_CONFIG_USERCONFIG",
    "PGPASSFILE",
    "PIP_CONFIG_FILE",
    "REGISTRY_AUTH_FILE",
    "SSH_AUTH_SOCK",
    "TF_CLI_CONFIG_FILE",
    "XAUTHORITY",
)

SYSTEM_SECRETS = (
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/security/opasswd",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/letsencrypt",
    "/etc/krb5.keytab",
    "/etc/kubernetes",
    "/etc/rancher",
    "/etc/wireguard",
    "/etc/openvpn",
    "/etc/NetworkManager/system-connections",
    "/etc/apt/auth.conf",
    "/etc/apt/auth.conf.d",
    "/etc/docker",
    "/etc/boto.cfg",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/NetworkManager",
    "/var/spool/cron",
    "/var/spool/mail",
    "/var/mail",
)


def homes() -> tuple[Path, ...]:
    """Our home, and for root, who could read them, everybody's."""
    found = {Path.home(), Path(pwd.getpwuid(os.getuid()).pw_dir)}
    if os.geteuid() == 0:
        found |= {Path("/root"), *_children(Path("/home"))}
    return tuple(sorted({home.resolve() for home in found if os.path.isdir(home) and home.resolve() != Path("/")}))


def home_secrets(home: Path) -> tuple[Path, ...]:
    return tuple(home / place for place in HOME_SECRETS)


def system_secrets() -> tuple[Path, ...]:
    host_keys = (path for path in _children(Path("/etc/ssh")) if path.name.endswith("_key"))
    return (*map(Path, SYSTEM_SECRETS), *host_keys)


def moved_secrets(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Where this environment says that they are."""
    values = (environment.get(name, "").removeprefix("FILE:") for name in POINTERS)
    found = [Path(path) for value in values for path in value.split(os.pathsep) if path.startswith("/")]
    for name, usual in (
        ("XDG_CONFIG_HOME", ".config/"),
        ("XDG_DATA_HOME", ".local/share/"),
        ("XDG_CACHE_HOME", ".cache/"),
    ):
        if base := environment.get(name):
            found += (Path(base, place.removeprefix(usual)) for place in HOME_SECRETS if place.startswith(usual))
    return tuple(path for path in found if path not in (Path("/"), Path("/dev/null")))


def secret_places() -> tuple[Path, ...]:
    """Every usual place of a secret on this machine that we could read, existing or not."""
    usual = (place for home in homes() for place in home_secrets(home))
    return (*usual, *moved_secrets(os.environ), *system_secrets())


def is_hidden(path: Path, places: Iterable[Path]) -> bool:
    """Whether a path leads to one of these places or into one, through symbolic links and `..` too."""
    real = path.resolve()
    return any(real.is_relative_to(place) or real.is_relative_to(place.resolve()) for place in places)


def with_real(places: Iterable[Path]) -> set[str]:
    """Each place, and where it really is. They are hundreds in a few directories, and every member asks anew: a
    directory is looked up once, and nothing is a `Path` here, which would take ten times as long."""
    directories: dict[str, str] = {}
    found: set[str] = set()
    for place in map(os.fspath, places):
        directory, name = os.path.split(place)
        if directory not in directories:
            directories[directory] = os.path.realpath(directory)
        real = os.path.join(directories[directory], name)
        found |= {place, os.path.realpath(real) if os.path.islink(real) else real}
    return found


def _children(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []
