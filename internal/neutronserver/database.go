// SPDX-License-Identifier: Apache-2.0

package neutronserver

import "path/filepath"

// The databases of Neutron and Octavia in MariaDB.
const (
	neutronSchema = "neutron"
	octaviaSchema = "octavia"
)

// Database is a MariaDB that only listens on a socket. SQLite would take less, but answers that it
// is locked as soon as Neutron makes two resources at a time.
type Database struct {
	Dir    string // of its files
	Socket string // its path: at most 107 characters
}

// Install returns the command that makes the files of a database without tables.
func (d Database) Install() []string {
	return []string{
		"mariadb-install-db", "--no-defaults", "--datadir=" + d.Dir, "--user=root", "--skip-name-resolve",
		"--skip-test-db", "--auth-root-authentication-method=normal", logSize,
	}
}

// logSize is small, since a copy of the files is made for each sandbox and test.
const logSize = "--innodb-log-file-size=16M"

// Serve returns the command that runs the server.
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

// Schema returns the command that makes Neutron's database in the running server, without tables.
func (d Database) Schema() []string { return d.create(neutronSchema) }

// OctaviaSchema is Schema for Octavia's database.
func (d Database) OctaviaSchema() []string { return d.create(octaviaSchema) }

func (d Database) create(schema string) []string {
	return []string{
		"mariadb", "--no-defaults", "--user=root", "--socket=" + d.Socket,
		"--execute=CREATE DATABASE " + schema + " CHARACTER SET utf8",
	}
}

// Migrate returns the command that makes Neutron's tables. Its file has MigrationConfiguration.
func (d Database) Migrate(file string) []string {
	return []string{"neutron-db-manage", "--config-file", file, "upgrade", "heads"}
}

// MigrateOctavia returns the command that makes Octavia's tables. Its file has
// OctaviaMigrationConfiguration.
func (d Database) MigrateOctavia(file string) []string {
	return []string{"octavia-db-manage", "--config-file", file, "upgrade", "head"}
}

// MigrationConfiguration is all that the command of Migrate has to know.
func (d Database) MigrationConfiguration() string { return connection(d.URL()) }

// OctaviaMigrationConfiguration is all that the command of MigrateOctavia has to know.
func (d Database) OctaviaMigrationConfiguration() string { return connection(d.OctaviaURL()) }

func connection(url string) string { return "[database]\nconnection = " + url + "\n" }

// OctaviaFiles is the folder that MariaDB has the files of Octavia's tables in.
func (d Database) OctaviaFiles() string { return filepath.Join(d.Dir, octaviaSchema) }

// URL is how Neutron finds its database.
func (d Database) URL() string { return d.url(neutronSchema) }

// OctaviaURL is how Octavia finds its database.
func (d Database) OctaviaURL() string { return d.url(octaviaSchema) }

func (d Database) url(schema string) string {
	return "mysql+pymysql://root@localhost/" + schema + "?unix_socket=" + d.Socket
}
