// SPDX-License-Identifier: Apache-2.0

package neutronserver

// schema is the database of Neutron in MariaDB.
const schema = "neutron"

// Database is a MariaDB that only listens on a socket. SQLite would take less, but answers that it
// is locked as soon as Neutron makes two resources at a time.
type Database struct {
	Dir    string // of its files
	Socket string // its path: at most 107 characters
}

// Install makes the files of a database without tables.
func (d Database) Install() []string {
	return []string{
		"mariadb-install-db", "--no-defaults", "--datadir=" + d.Dir, "--user=root", "--skip-name-resolve",
		"--skip-test-db", "--auth-root-authentication-method=normal", logSize,
	}
}

// logSize is small, since a copy of the files is made for each sandbox and test.
const logSize = "--innodb-log-file-size=16M"

// Serve runs the server.
func (d Database) Serve() []string {
	return []string{
		"mariadbd", "--no-defaults", "--user=root", "--datadir=" + d.Dir, "--socket=" + d.Socket,
		"--skip-networking", logSize,
		// What the kernel has of a transaction outlives the process. Only a crash of the kernel may
		// take the last second.
		"--innodb-flush-log-at-trx-commit=2",
		"--innodb-buffer-pool-size=64M",
	}
}

// Schema makes Neutron's database in the running server; Migrate makes its tables.
func (d Database) Schema() []string {
	return []string{
		"mariadb", "--no-defaults", "--user=root", "--socket=" + d.Socket,
		"--execute=CREATE DATABASE " + schema + " CHARACTER SET utf8",
	}
}

// Migrate makes Neutron's tables by a file with MigrationConfiguration.
func (d Database) Migrate(file string) []string {
	return []string{"neutron-db-manage", "--config-file", file, "upgrade", "heads"}
}

// MigrationConfiguration is all that Migrate has to know.
func (d Database) MigrationConfiguration() string {
	return "[database]\nconnection = " + d.URL() + "\n"
}

// URL is how Neutron finds it.
func (d Database) URL() string {
	return "mysql+pymysql://root@localhost/" + schema + "?unix_socket=" + d.Socket
}
