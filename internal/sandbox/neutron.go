// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"coelan.io/coelan/internal/neutronserver"
	"coelan.io/coelan/internal/sandbox/artifact"
	"coelan.io/coelan/internal/sandbox/machine"
)

// The components of Neutron.
const (
	mariaDB       = "mariadb"
	neutronServer = "neutron-server"
)

const (
	neutronPort   = 9696 // as in all of OpenStack's documentation
	neutronFile   = "/etc/neutron/neutron.conf"
	neutronState  = "/var/lib/neutron"
	neutronData   = "/var/lib/mysql"
	mariaDBRunDir = "/run/mysqld"
)

// neutron is the neutron-server of the control plane's first node.
func (s Spec) neutron() neutronserver.Server {
	return neutronserver.Server{
		Listen:     netip.AddrPortFrom(s.addresses(ControlPlaneName)[0], neutronPort),
		Dir:        neutronState,
		Database:   neutronserver.Database{Dir: neutronData, Socket: mariaDBRunDir + "/mysqld.sock"},
		Northbound: "unix:" + ovnSocket(ovnNorthbound), Southbound: "unix:" + ovnSocket(ovnSouthbound),
	}
}

func (s Spec) neutronComponents() []machine.Component {
	n := s.neutron()
	return []machine.Component{
		{
			Name: mariaDB, Command: n.Database.Serve(),
			Before: [][]string{{"mkdir", "-p", mariaDBRunDir}},
			Ready:  machine.Probe{Socket: n.Database.Socket},
		},
		{
			Name: neutronServer, Command: n.Command(neutronFile), Group: true,
			After:  []string{ovsVswitchd, mariaDB, ovnNorthbound, ovnSouthbound},
			Before: [][]string{{"mkdir", "-p", neutronState}, {"sh", "-c", free(n.Listen.Port())}},
			Ready:  machine.Probe{URL: n.Ready()},
		},
	}
}

// free is a script that fails while something listens on a port, and says what. neutron-server
// would try for half a minute.
func free(port uint16) string {
	return fmt.Sprintf(`other=$(ss -Hltnp "sport = :%[1]d") && [ -z "$other" ] || `+
		`{ echo "port %[1]d is in use: $other"; exit 1; }`, port)
}

// plantNeutron puts the database of Neutron and Octavia on the disk in dir. One that is there
// stays.
func (s *Sandbox) plantNeutron(ctx context.Context, dir string) error {
	database, err := s.cache.NeutronDatabase(ctx)
	if err != nil {
		return err
	}
	planted := neutronserver.Database{Dir: filepath.Join(dir, neutronData)}
	if err := plant(planted.Dir, func(tmp string) error { return artifact.CopyTree(ctx, database, tmp) }); err != nil {
		return err
	}
	return s.checkOctavia(planted)
}

// checkOctavia returns an error if there are no tables of Octavia.
func (s Spec) checkOctavia(d neutronserver.Database) error {
	_, err := os.Stat(d.OctaviaFiles())
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("its database is of an older release, which had no Octavia: take the sandbox down with "+
			"`coelan sandbox down --name %s`, and bring it up anew", s.Name)
	}
	return err
}

func (s *Sandbox) waitNeutron(ctx context.Context) error {
	return s.WaitComponent(ctx, ControlPlaneName, neutronServer, apiTimeout)
}
