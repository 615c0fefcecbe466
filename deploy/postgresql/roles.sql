-- Who may do what in the database of Bullpen. To be run as a superuser in each such database; twice does no harm:
--
--     createdb bullpen && psql -d bullpen -v ON_ERROR_STOP=1 -f roles.sql
--
-- bullpen_owner   makes and changes the tables (`bullpen migrate`), and does nothing else
-- bullpen_worker  reads and writes rows: `bullpen worker`, `run` and every other command
-- bullpen_reader  only looks: `watch`, `events`, `cost`, a dashboard
--
-- None of them has a password yet: `\password bullpen_worker` in psql sets one without writing it down anywhere, and
-- certificates or GSSAPI need none. Take away what is not wanted in pg_hba.conf, not here.

-- Roles belong to the server, not to the database: another one may have made them.
DO $$ DECLARE wanted name; BEGIN
    FOREACH wanted IN ARRAY ARRAY['bullpen_owner', 'bullpen_worker', 'bullpen_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            EXECUTE format('CREATE ROLE %I LOGIN NOINHERIT', wanted);
        END IF;
    END LOOP;
END $$;

-- What every role of a server may do in every database unless somebody says otherwise.
DO $$ BEGIN
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format(
        'GRANT CONNECT ON DATABASE %I TO bullpen_owner, bullpen_worker, bullpen_reader', current_database());
    EXECUTE format('ALTER DATABASE %I SET search_path = bullpen', current_database());
END $$;

CREATE SCHEMA IF NOT EXISTS bullpen AUTHORIZATION bullpen_owner;
GRANT USAGE ON SCHEMA bullpen TO bullpen_worker, bullpen_reader;

-- Tables that a later version adds are covered as they are made. No TRUNCATE, no REFERENCES, no TRIGGER.
ALTER DEFAULT PRIVILEGES FOR ROLE bullpen_owner IN SCHEMA bullpen
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO bullpen_worker;
ALTER DEFAULT PRIVILEGES FOR ROLE bullpen_owner IN SCHEMA bullpen
    GRANT USAGE, SELECT ON SEQUENCES TO bullpen_worker;
ALTER DEFAULT PRIVILEGES FOR ROLE bullpen_owner IN SCHEMA bullpen
    GRANT SELECT ON TABLES TO bullpen_reader;

-- Where the server holds other databases too: lets a look at the log not wait for their open transactions.
-- GRANT pg_read_all_stats TO bullpen_worker, bullpen_reader;
