"""Every SQL statement, named and in one place.

`:name` is a parameter, `{task_columns}` the select list of a table, `{for_update}`,
`{for_share}` and `{skip_locked}` the row locks of a database that has them.
Statuses stand as literals: only then does the planner use the partial indexes.
"""

from __future__ import annotations

# -- teams, workers, members ---------------------------------------------------------

FENCE = """
    SELECT {member_columns}, {team_columns}, {transaction_id}
    FROM member JOIN team ON team.id = member.team_id
    WHERE member.team_id = :team_id AND member.name_key = :name_key
"""

FIND_MEMBER = "SELECT {member_columns} FROM member WHERE team_id = :team_id AND name_key = :name_key"

TEAM_OF_FENCE = "SELECT {team_columns}, {transaction_id} FROM team WHERE id = :team_id"

FIND_LIVE_TEAM = "SELECT {team_columns} FROM team WHERE name_key = :name_key AND deleted_at IS NULL"

LIST_TEAMS = "SELECT {team_columns} FROM team ORDER BY id"

LIST_LIVE_TEAMS = "SELECT {team_columns} FROM team WHERE deleted_at IS NULL ORDER BY id"

COUNT_GENERATIONS = "SELECT count(*) FROM team WHERE name_key = :name_key"

LIST_WORKERS = "SELECT {worker_columns} FROM worker ORDER BY id"

LIST_LIVE_WORKERS = "SELECT {worker_columns} FROM worker WHERE stopped_at IS NULL ORDER BY id"

LIST_MEMBERS = "SELECT {member_columns} FROM member WHERE team_id = :team_id ORDER BY created_at, name_key"

# Locks are taken in ascending order of the key, whatever the reader wants to see first.
HOLD_MEMBERS = "SELECT {member_columns} FROM member WHERE team_id = :team_id ORDER BY name_key"

HOLD_WHO_CAN_BE_REVIVED = """
    SELECT 1 FROM member
    WHERE team_id = :team_id AND status = 'shutdown' AND kind = 'teammate' AND status_reason = 'timeout'
    ORDER BY name_key
"""

LIST_MEMBERS_OF = "SELECT {member_columns} FROM member WHERE worker_id = :worker_id ORDER BY team_id, name_key"

# Few or none of those who are hosted, of whom there is an index.
LIST_STOPPING = """
    SELECT {member_columns} FROM member
    WHERE worker_id IS NOT NULL AND status = 'stopping' AND shutdown_request_id IS NOT NULL
    ORDER BY team_id, name_key
"""

LIST_WANTED = """
    SELECT {member_columns} FROM member
    WHERE status = 'wanted' AND (kind = 'lead' OR :leads_only = 0) AND (labels = '[]' OR {labels_allowed})
      AND member.team_id IN (SELECT id FROM team WHERE deleted_at IS NULL) AND NOT {team_excepted}
    ORDER BY status_at, member.team_id, name_key LIMIT :limit {skip_locked}
"""

LIST_WANTED_OF_TEAM = """
    SELECT {member_columns} FROM member
    WHERE status = 'wanted' AND (kind = 'lead' OR :leads_only = 0) AND (labels = '[]' OR {labels_allowed})
      AND member.team_id = :team_id
      AND EXISTS (SELECT 1 FROM team WHERE id = :team_id AND deleted_at IS NULL)
    ORDER BY status_at, name_key LIMIT :limit {skip_locked}
"""

WAIT_FOR_WANTED = LIST_WANTED.replace("{skip_locked}", "{for_update}")

WAIT_FOR_WANTED_OF_TEAM = LIST_WANTED_OF_TEAM.replace("{skip_locked}", "{for_update}")

HAS_WANTED = "SELECT 1 FROM member WHERE status = 'wanted' LIMIT 1"

COUNT_HOSTED = "SELECT count(*) FROM member WHERE worker_id = :worker_id AND kind = 'teammate'"

COUNT_TEAMMATES = "SELECT count(*) FROM member WHERE team_id = :team_id AND kind = 'teammate' AND status <> 'shutdown'"

# The role is compared only if the task has one: any member may take a task without. OFFSET makes PostgreSQL look for
# the task of each candidate, of whom the first few are enough, instead of gathering those of everybody at work.
LIST_CLAIMERS = """
    SELECT {member_columns} FROM member
    WHERE team_id = :team_id AND status IN ({statuses})
      AND (:role_key = '' OR role_key = :role_key)
      AND kind IN ('teammate', 'external') AND autonomy = 'auto' AND shutdown_request_id IS NULL
      AND (status <> 'shutdown' OR (kind = 'teammate' AND status_reason = 'timeout'))
      AND (status <> 'idle' OR NOT EXISTS (
        SELECT 1 FROM task
        WHERE task.team_id = member.team_id AND task.owner_key = member.name_key AND task.status = 'in_progress'
        LIMIT 1 OFFSET 0))
    ORDER BY status_at, name_key LIMIT :limit
"""

LIST_DUE_FOR_MAIL = """
    SELECT {member_columns} FROM member
    WHERE worker_id = :worker_id AND EXISTS (
        SELECT 1 FROM message
        WHERE message.team_id = member.team_id AND recipient_key = name_key AND delivered_at IS NULL AND wakes = {true})
"""

LIST_DUE_FOR_ASSIGNED = """
    SELECT {member_columns} FROM member
    WHERE worker_id = :worker_id AND member.status = 'idle' AND EXISTS (
        SELECT 1 FROM task
        WHERE task.team_id = member.team_id AND task.owner_key = member.name_key
          AND task.status = 'pending' AND task.owner_key IS NOT NULL AND task.open_blockers = 0)
      AND NOT EXISTS (
        SELECT 1 FROM task
        WHERE task.team_id = member.team_id AND task.owner_key = member.name_key AND task.status = 'in_progress')
"""

# Of the idle members of one team and role, as many as there are tasks for them, at most.
LIST_IDLE_ROLES = """
    SELECT DISTINCT team_id, role_key FROM member
    WHERE worker_id = :worker_id AND status = 'idle' AND autonomy = 'auto' AND shutdown_request_id IS NULL
      AND kind IN ('teammate', 'external')
"""

LIST_IDLE_OF_ROLE = """
    SELECT {member_columns} FROM member
    WHERE team_id = :team_id AND status = 'idle' AND role_key = :role_key AND worker_id = :worker_id
      AND autonomy = 'auto' AND shutdown_request_id IS NULL AND kind IN ('teammate', 'external')
      AND NOT EXISTS (
        SELECT 1 FROM task
        WHERE task.team_id = member.team_id AND task.owner_key = member.name_key AND task.status = 'in_progress')
    ORDER BY status_at, name_key LIMIT :limit
"""

COUNT_CLAIMABLE = """
    SELECT count(*) FROM (
        SELECT 1 FROM task
        WHERE team_id = :team_id AND role_key = :role_key
          AND status = 'pending' AND open_blockers = 0 AND owner_key IS NULL
        LIMIT :limit) AS found
"""

HAS_ROLE = """
    SELECT 1 FROM member
    WHERE team_id = :team_id AND role_key = :role_key AND kind IN ('teammate', 'external') LIMIT 1
"""

# -- tasks -----------------------------------------------------------------------------

TAKE_TASK_ID = "UPDATE team SET next_task_id = next_task_id + 1 WHERE id = :team_id RETURNING next_task_id - 1"

TAKE_REQUEST_ID = (
    "UPDATE team SET next_request_id = next_request_id + 1 WHERE id = :team_id RETURNING next_request_id - 1"
)

LIST_TASKS = """
    SELECT {task_columns} FROM task
    WHERE team_id = :team_id AND id > :after_id AND status <> 'deleted'
    ORDER BY id LIMIT :limit
"""

LIST_TASKS_BY_STATUS = """
    SELECT {task_columns} FROM task
    WHERE team_id = :team_id AND id > :after_id AND status = :status
    ORDER BY id LIMIT :limit
"""

LIST_TASKS_BY_OWNER = """
    SELECT {task_columns} FROM task
    WHERE team_id = :team_id AND id > :after_id AND owner_key = :owner_key AND status <> 'deleted'
    ORDER BY id LIMIT :limit
"""

LIST_TASKS_BY_STATUS_AND_OWNER = """
    SELECT {task_columns} FROM task
    WHERE team_id = :team_id AND id > :after_id AND owner_key = :owner_key AND status = :status
    ORDER BY id LIMIT :limit
"""

HOLD_TASK = "SELECT 1 FROM task WHERE team_id = :team_id AND id = :id"

FIND_TASK = "SELECT {task_columns} FROM task WHERE team_id = :team_id AND id = :id"

FIND_TASKS = "SELECT {task_columns} FROM task WHERE team_id = :team_id AND id = ANY(:ids) ORDER BY id"

FIND_IN_PROGRESS = """
    SELECT {task_columns} FROM task
    WHERE team_id = :team_id AND owner_key = :owner_key AND status = 'in_progress'
"""

# A range of one role, not an equality: then only the index of the claimable ones has this order. Else they may be
# sought along the primary key, past all that are finished, which looks as cheap as long as most are pending.
_NEXT_CLAIMABLE = """
    SELECT id FROM task
    WHERE team_id = :team_id AND role_key BETWEEN :role_key AND :role_key
      AND status = 'pending' AND open_blockers = 0 AND owner_key IS NULL
    ORDER BY role_key, id LIMIT 1"""

_NEXT_ASSIGNED = """
    SELECT id FROM task
    WHERE team_id = :team_id AND owner_key = :name_key AND status = 'pending' AND owner_key IS NOT NULL
      AND open_blockers = 0
    ORDER BY id LIMIT 1"""

# Three probes of an index, each for one row: assigned to the claimer; of its role; of no role.
CLAIM_NEXT_SQLITE = """
    UPDATE task
    SET status = 'in_progress', owner = :name, owner_key = :name_key, claimed_at = :now, updated_at = :now,
        reserved_until = NULL
    WHERE team_id = :team_id
      AND NOT EXISTS (
        SELECT 1 FROM task WHERE team_id = :team_id AND owner_key = :name_key AND status = 'in_progress')
      AND id = coalesce(
        (SELECT id FROM task
         WHERE team_id = :team_id AND owner_key = :name_key AND status = 'pending' AND owner_key IS NOT NULL
           AND open_blockers = 0
         ORDER BY id LIMIT 1),
        (SELECT min(id) FROM (
            SELECT * FROM (
                SELECT id FROM task
                WHERE team_id = :team_id AND role_key = ''
                  AND status = 'pending' AND open_blockers = 0 AND owner_key IS NULL
                ORDER BY id LIMIT 1)
            UNION ALL
            SELECT * FROM (
                SELECT id FROM task
                WHERE team_id = :team_id AND role_key = :role_key
                  AND status = 'pending' AND open_blockers = 0 AND owner_key IS NULL
                ORDER BY id LIMIT 1))))
    RETURNING {task_columns}
"""

# The same probes, each locking the one row that it finds and passing over those that others have locked. Of the two
# roles the one with the lower number is looked up unlocked first: a row locked and not taken would be hidden from the
# others. Subqueries of COALESCE and CASE run only if they are reached, but each costs something even so: whoever has
# no role gets a statement without those for one. It is asked along with the fence, so it looks for itself whether the
# claimer is as it was assumed to be.
_CLAIM_NEXT = """
    UPDATE task
    SET status = 'in_progress', owner = :name, owner_key = :name_key, claimed_at = :now, updated_at = :now,
        reserved_until = NULL
    WHERE team_id = :team_id
      AND EXISTS (
        SELECT 1 FROM member
        WHERE team_id = :team_id AND name_key = :name_key
          AND name = :name AND role_key = :role_key AND autonomy = 'auto')
      AND NOT EXISTS (
        SELECT 1 FROM task WHERE team_id = :team_id AND owner_key = :name_key AND status = 'in_progress')
      AND id = coalesce(({assigned} {skip_locked}), {next})
    RETURNING {task_columns}
"""
_NEXT_OF_TWO = """
    CASE WHEN ({own}) < ({free}) THEN coalesce(({own} {skip_locked}), ({free} {skip_locked}))
         ELSE coalesce(({free} {skip_locked}), ({own} {skip_locked})) END
"""


def _with_probes(statement: str) -> str:
    free = _NEXT_CLAIMABLE.replace(":role_key", "''")
    for mark, probe in {"{assigned}": _NEXT_ASSIGNED, "{own}": _NEXT_CLAIMABLE, "{free}": free}.items():
        statement = statement.replace(mark, probe)
    return statement


CLAIM_NEXT_POSTGRES = _with_probes(_CLAIM_NEXT.replace("{next}", _NEXT_OF_TWO))

CLAIM_NEXT_WITHOUT_ROLE = _with_probes(_CLAIM_NEXT.replace("{next}", "({free} {skip_locked})"))

# The ways to see more than the next one: all that are there, in the order of a claim, and then one by its number.
LIST_IN_PROGRESS = """
    SELECT {task_columns} FROM task WHERE team_id = :team_id AND status = 'in_progress' ORDER BY id
"""

LIST_CLAIMABLE = """
    SELECT {task_columns} FROM task
    WHERE team_id = :team_id AND role_key BETWEEN :role_key AND :role_key
      AND status = 'pending' AND open_blockers = 0 AND owner_key IS NULL
    ORDER BY role_key, id LIMIT :limit
"""

LIST_ASSIGNED = """
    SELECT {task_columns} FROM task
    WHERE team_id = :team_id AND owner_key = :name_key AND status = 'pending' AND owner_key IS NOT NULL
      AND open_blockers = 0
    ORDER BY id LIMIT :limit
"""

CLAIM_ONE = """
    UPDATE task
    SET status = 'in_progress', owner = :name, owner_key = :name_key, claimed_at = :now, updated_at = :now,
        reserved_until = NULL
    WHERE team_id = :team_id AND id = (
        SELECT id FROM task
        WHERE team_id = :team_id AND id = :id AND status = 'pending' AND open_blockers = 0
          AND (owner_key = :name_key OR (owner_key IS NULL AND role_key IN ('', :role_key)))
        {skip_locked})
    RETURNING {task_columns}
"""

# What a claim would take: here it is waited for, if somebody holds it, be it only shared.
WAIT_FOR_CLAIMABLE = f"{_NEXT_CLAIMABLE} {{for_update}}"

WAIT_FOR_ASSIGNED = f"{_NEXT_ASSIGNED} {{for_update}}"

HAS_CLAIMABLE = """
    SELECT 1 FROM task
    WHERE team_id = :team_id AND role_key = :role_key
      AND status = 'pending' AND open_blockers = 0 AND owner_key IS NULL
    LIMIT 1
"""

HAS_ASSIGNED_TASK = """
    SELECT 1 FROM task
    WHERE team_id = :team_id AND owner_key = :name_key AND status = 'pending' AND owner_key IS NOT NULL LIMIT 1
"""

HAS_FREE_TASK = """
    SELECT 1 FROM task
    WHERE team_id = :team_id AND role_key IN ('', :role_key) AND status = 'pending' AND owner_key IS NULL LIMIT 1
"""

CLEAR_RESERVATION = """
    UPDATE task SET reserved_until = NULL
    WHERE team_id = :team_id AND owner_key = :owner_key AND status = 'in_progress' AND reserved_until IS NOT NULL
"""

HAS_TASKS = "SELECT 1 FROM task WHERE team_id = :team_id LIMIT 1"

LIST_RESERVED_BEFORE = """
    SELECT {task_columns} FROM task
    WHERE reserved_until IS NOT NULL AND reserved_until < :moment AND status = 'in_progress'
    ORDER BY team_id, id {for_update}
"""

ADD_EDGE = """
    INSERT INTO task_edge (team_id, task_id, blocker_id) VALUES (:team_id, :task_id, :blocker_id)
    ON CONFLICT DO NOTHING RETURNING 1
"""

REMOVE_EDGE = """
    DELETE FROM task_edge WHERE team_id = :team_id AND task_id = :task_id AND blocker_id = :blocker_id RETURNING 1
"""

COUNT_BLOCKER = "UPDATE task SET open_blockers = open_blockers + :change WHERE team_id = :team_id AND id = :task_id"

# In one statement each, where a statement is a round trip. The rows are locked in ascending order before they change.
HOLD_DEPENDENTS = """
    SELECT task.id FROM task
    WHERE team_id = :team_id
      AND id IN (SELECT task_id FROM task_edge WHERE team_id = :team_id AND blocker_id = :blocker_id)
    ORDER BY id {for_update}
"""

COUNT_BLOCKER_OF_ALL = """
    UPDATE task SET open_blockers = open_blockers + :change WHERE team_id = :team_id AND id = ANY(:ids)
    RETURNING {task_columns}
"""

DEPENDENTS = "SELECT task_id FROM task_edge WHERE team_id = :team_id AND blocker_id = :blocker_id ORDER BY task_id"

# -- the queue -------------------------------------------------------------------------

NEXT_SUBMISSION_ID = "SELECT coalesce(max(id), 0) + 1 FROM submission WHERE team_id = :team_id"

_HAS_NONE_TAKEN = """
      AND NOT EXISTS (
        SELECT 1 FROM submission AS other WHERE other.team_id = submission.team_id AND other.state = 'taken')
      AND EXISTS (SELECT 1 FROM team WHERE team.id = submission.team_id AND team.deleted_at IS NULL)"""

FIND_QUEUED = f"""
    SELECT {{submission_columns}} FROM submission
    WHERE state = 'queued' AND NOT {{team_excepted}} {_HAS_NONE_TAKEN}
    ORDER BY submitted_at, team_id, id LIMIT 1
"""

FIND_QUEUED_OF_TEAM = f"""
    SELECT {{submission_columns}} FROM submission
    WHERE team_id = :team_id AND state = 'queued' {_HAS_NONE_TAKEN}
    ORDER BY id LIMIT 1
"""

LIST_SUBMISSIONS = "SELECT {submission_columns} FROM submission WHERE team_id = :team_id ORDER BY id"

LIST_SUBMISSIONS_OF = """
    SELECT {submission_columns} FROM submission WHERE team_id = :team_id AND member_key = :member_key ORDER BY id
"""

LIST_OPEN_SUBMISSIONS = """
    SELECT {submission_columns} FROM submission
    WHERE team_id = :team_id AND state IN ('queued', 'taken') ORDER BY id
"""

LIST_TAKEN = """
    SELECT {submission_columns} FROM submission
    WHERE state = 'taken' AND worker_id = :worker_id ORDER BY team_id, id
"""

# -- mail, requests, transcript ----------------------------------------------------------

LIST_UNDELIVERED = """
    SELECT {message_columns} FROM message
    WHERE team_id = :team_id AND recipient_key = :key AND delivered_at IS NULL
    ORDER BY id LIMIT :limit
"""

HAS_UNDELIVERED = """
    SELECT 1 FROM message
    WHERE team_id = :team_id AND recipient_key = :key AND delivered_at IS NULL AND wakes = {true} LIMIT 1
"""

MARK_DELIVERED = """
    UPDATE message SET delivered_at = :now, delivered_turn = :turn_seq
    WHERE team_id = :team_id AND id = :id AND delivered_at IS NULL
"""

MARK_ALL_DELIVERED = """
    UPDATE message SET delivered_at = :now, delivered_turn = :turn_seq
    WHERE team_id = :team_id AND id = ANY(:ids) AND delivered_at IS NULL
"""

LIST_MAIL = """
    SELECT {message_columns} FROM message
    WHERE team_id = :team_id AND recipient_key = :key ORDER BY id DESC LIMIT :limit
"""

LIST_MAIL_UNDELIVERED = """
    SELECT {message_columns} FROM message
    WHERE team_id = :team_id AND recipient_key = :key AND delivered_at IS NULL ORDER BY id DESC LIMIT :limit
"""

LIST_MAIL_KEYS = """
    SELECT DISTINCT recipient_key FROM message
    WHERE team_id = :team_id AND delivered_at IS NULL AND wakes = {true} ORDER BY recipient_key
"""

FIND_LAST_MAIL = """
    SELECT {message_columns} FROM message
    WHERE team_id = :team_id AND recipient_key = :key AND sender = :sender AND (:type = '' OR type = :type)
    ORDER BY id DESC LIMIT 1
"""

LIST_REQUESTS = "SELECT {request_columns} FROM request WHERE team_id = :team_id ORDER BY id"

LIST_REQUESTS_DUE = """
    SELECT {request_columns} FROM request
    WHERE status = 'open' AND open_until IS NOT NULL AND open_until < :moment ORDER BY team_id, id
"""

FIND_END = """
    SELECT (SELECT coalesce(max(seq), 0) FROM turn WHERE team_id = :team_id AND member_key = :key),
           EXISTS (SELECT 1 FROM tool_call
                   WHERE team_id = :team_id AND member_key = :key AND state IN ('queued', 'started'))
"""

LIST_TURNS = """
    SELECT {turn_columns} FROM turn
    WHERE team_id = :team_id AND member_key = :key AND seq > :after_seq ORDER BY seq LIMIT :limit
"""

LIST_CALLS = """
    SELECT {tool_call_columns} FROM tool_call
    WHERE team_id = :team_id AND member_key = :key ORDER BY turn_seq, position
"""

LIST_OPEN_CALLS = """
    SELECT {tool_call_columns} FROM tool_call
    WHERE team_id = :team_id AND member_key = :key AND state IN ('queued', 'started')
    ORDER BY turn_seq, position
"""

# -- background work, budgets --------------------------------------------------------------

HOLD_TEAM = "SELECT 1 FROM team WHERE id = :team_id {for_update}"

NEXT_BACKGROUND_ID = "SELECT coalesce(max(id), 0) + 1 FROM background WHERE team_id = :team_id"

LIST_BACKGROUNDS = """
    SELECT {background_columns} FROM background
    WHERE team_id = :team_id AND (:key = '' OR member_key = :key) ORDER BY id
"""

LIST_RUNNING_BACKGROUNDS = """
    SELECT {background_columns} FROM background
    WHERE team_id = :team_id AND state = 'running' AND (:key = '' OR member_key = :key) ORDER BY id
"""

HOLD_ACCOUNTS = """
    SELECT {account_columns} FROM account
    WHERE team_id = :team_id AND member_key IN ('', :key) ORDER BY member_key
"""

MAKE_ACCOUNT = """
    INSERT INTO account (
        team_id, member_key, calls, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_usd,
        open_calls, open_tokens, open_cost_usd, told)
    VALUES (:team_id, :key, 0, 0, 0, 0, 0, 0, 0, 0, 0, '[]')
    ON CONFLICT DO NOTHING
"""

LIST_ACCOUNTS = "SELECT {account_columns} FROM account WHERE team_id = :team_id ORDER BY member_key"

LIST_OPEN_RESERVATIONS = """
    SELECT {reservation_columns} FROM reservation WHERE team_id = :team_id AND settled_at IS NULL ORDER BY id
"""

# -- operations and events ---------------------------------------------------------------

FIND_OPERATION = "SELECT outcome FROM operation WHERE id = :id"

SAVE_OPERATION = "INSERT INTO operation (id, at, outcome) VALUES (:id, :now, :outcome)"
