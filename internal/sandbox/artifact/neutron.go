// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"coelan.io/coelan/internal/child"
	"coelan.io/coelan/internal/neutronserver"
)

const neutronTimeout = 5 * time.Minute

// NeutronTools are the programs of a Neutron and an Octavia, and of their database.
var NeutronTools = []Tool{
	{"neutron-server", "neutron-server"},
	{"neutron-db-manage", "neutron-common"},
	{"octavia-api", "octavia-api"},
	{"octavia-driver-agent", "octavia-driver-agent"},
	{"octavia-db-manage", "octavia-common"},
	{"mariadbd", "mariadb-server-core"},
	{"mariadb-install-db", "mariadb-server-core"},
	{"mariadb", "mariadb-client-core"},
}

// NeutronDatabase is a folder with the files of a MariaDB that has the tables of Neutron and
// Octavia, which is made if it is not there: the migrations take up to a minute. Users take a copy.
func (c Cache) NeutronDatabase(ctx context.Context) (string, error) {
	versions, err := exec.CommandContext(ctx, "dpkg-query", "--show",
		"python3-neutron", "python3-octavia", "mariadb-server-core").Output()
	if err != nil {
		return "", fmt.Errorf("versions of Neutron, Octavia and MariaDB: %w (`make deps-neutron` installs them)", err)
	}
	// Without it there are no tables for BGPVPNs, which is its only error.
	bgpvpns, _ := exec.CommandContext(ctx, "dpkg-query", "--show", "python3-networking-bgpvpn").Output()
	unlock, err := c.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	name := "neutron-" + key(string(versions), string(bgpvpns), neutronserver.Database{}.Install())
	return filepath.Join(c.Dir, name), c.make(name, "database of Neutron and Octavia", func(dir string) error {
		ctx, cancel := context.WithTimeout(ctx, neutronTimeout)
		defer cancel()
		return makeNeutronDatabase(ctx, dir)
	})
}

// makeNeutronDatabase runs a MariaDB only for this.
func makeNeutronDatabase(ctx context.Context, dir string) (err error) {
	state, err := os.MkdirTemp("", "coelan-neutron-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(state)
	db := neutronserver.Database{Dir: dir, Socket: filepath.Join(state, "db.sock")}
	if err := Run(ctx, "/", nil, db.Install()...); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(state, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	args := db.Serve()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := child.Start(cmd); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait(); cancel() }()
	err = fillNeutronDatabase(ctx, db, state)
	_ = cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended by itself
	if err = errors.Join(err, <-exited); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%w\nMariaDB's log ends:\n%s", err, tail(text))
	}
	return nil
}

func fillNeutronDatabase(ctx context.Context, db neutronserver.Database, state string) error {
	if err := waitSocket(ctx, db.Socket); err != nil {
		return err
	}
	neutron, octavia := filepath.Join(state, "neutron.conf"), filepath.Join(state, "octavia.conf")
	if err := errors.Join(
		os.WriteFile(neutron, []byte(db.MigrationConfiguration()), 0o600),
		os.WriteFile(octavia, []byte(db.OctaviaMigrationConfiguration()), 0o600),
	); err != nil {
		return err
	}
	for _, args := range [][]string{
		db.Schema(), db.Migrate(neutron), db.OctaviaSchema(), db.MigrateOctavia(octavia),
	} {
		if err := Run(ctx, "/", nil, args...); err != nil {
			return err
		}
	}
	return nil
}
