-- A watcher that ends politely takes its row with it: what is left in the table is alive or crashed.
DELETE FROM leasetop_watchers WHERE name = :name::text
