"""What the SQL stores share: tables, statements, migrations, and the transaction over them."""
