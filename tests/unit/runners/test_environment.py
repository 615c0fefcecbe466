"""What is handed to workers on other machines."""

from __future__ import annotations

from bullpen.runners.ray.actor import Recipe
from bullpen.runners.ray.environment import taken_along


def test_keys_addresses_and_settings_are_taken_along_and_what_is_of_this_machine_is_not() -> None:
    environ = {
        "ANTHROPIC_API_KEY": "a",
        "OPENAI_BASE_URL": "b",
        "NEWCOMER_API_KEY": "c",
        "PGPASSWORD": "d",
        "BULLPEN_IDLE__TIMEOUT_SECONDS": "5",
        "DATABASE_URL": "e",
        "BULLPEN_STORE": "postgresql://here",
        "BULLPEN_SANDBOX": "/here",
        "PATH": "/bin",
        "HOME": "/root",
        "SSH_AUTH_SOCK": "/here",
    }
    assert taken_along(environ, ["DATABASE_URL"]).keys() == {
        "ANTHROPIC_API_KEY",
        "OPENAI_BASE_URL",
        "NEWCOMER_API_KEY",
        "PGPASSWORD",
        "BULLPEN_IDLE__TIMEOUT_SECONDS",
        "DATABASE_URL",
    }


def test_a_recipe_shows_neither_its_store_nor_its_keys() -> None:
    recipe = Recipe(
        store="postgresql://me:secret@here/db",
        team_id=1,
        slots=2,
        labels=(),
        lease_seconds=15,
        rest_seconds=5,
        model=None,
        workspace=None,
        is_interactive=False,
        environment={"ANTHROPIC_API_KEY": "secret"},
    )
    assert "secret" not in repr(recipe) + str(recipe)
