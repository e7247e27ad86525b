// SPDX-License-Identifier: Apache-2.0

// Package neutrontest runs a real neutron-server for tests, in a directory of its own and on a free
// port of the loopback interface, as package neutronserver says. It needs the Debian packages of
// hack/packages-neutron.txt.
package neutrontest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"coelan.io/coelan/internal/neutronserver"
	"coelan.io/coelan/internal/ovntest"
	"coelan.io/coelan/internal/sandbox/artifact"
)

// Project is the one that Servers' resources are of.
const Project = neutronserver.Project

// startTimeout bounds the start of a program: Python reads some thousand files.
const startTimeout = 2 * time.Minute

// Server is a neutron-server and its database.
type Server struct {
	// Endpoint is its URL, which ends with a slash.
	Endpoint string

	server           neutronserver.Server
	config           string
	database, python *process
}

// Options say which databases of OVN a Server works with, and where its files are.
type Options struct {
	Northbound, Southbound string // such as unix:/run/nb.sock
	// Dir has a path that is short enough for sockets.
	Dir string
}

// Start runs a Server with the databases of OVN, of which ovn-northd has to run, until the test
// ends.
func Start(t testing.TB, o *ovntest.OVN) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "neutron") //nolint:usetesting // the paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(t.Context(), Options{Northbound: o.Remote("nb"), Southbound: o.Remote("sb"), Dir: dir})
	t.Cleanup(func() {
		if s != nil {
			s.Close()
			if t.Failed() {
				t.Logf("neutron-server's log ends:\n%s", s.Log())
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// New makes a Server's files and starts it. It must be closed also after an error, unless it is
// nil.
func New(ctx context.Context, o Options) (*Server, error) {
	listen, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	s := &Server{config: filepath.Join(o.Dir, "neutron.conf")}
	database := neutronserver.Database{Dir: filepath.Join(o.Dir, "mysql"), Socket: filepath.Join(o.Dir, "mysql.sock")}
	s.server = neutronserver.Server{
		Listen: listen, Dir: o.Dir, Database: database, Northbound: o.Northbound, Southbound: o.Southbound,
		BGPVPNs: true,
	}
	s.Endpoint = s.server.Endpoint()
	if err := os.WriteFile(s.config, []byte(s.server.Configuration()), 0o600); err != nil {
		return nil, err
	}
	cache := artifact.Cache{Dir: artifact.DefaultDir(), Step: func(_ string, run func() error) error { return run() }}
	files, err := cache.NeutronDatabase(ctx)
	if err != nil {
		return nil, err
	}
	if err := artifact.CopyTree(ctx, files, s.server.Database.Dir); err != nil {
		return nil, err
	}
	if err := s.serveDatabase(ctx); err != nil {
		return s, err
	}
	return s, s.Run(ctx)
}

// freePort is one of the loopback interface that nothing listens on.
func freePort(ctx context.Context) (netip.AddrPort, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer l.Close()
	return netip.ParseAddrPort(l.Addr().String())
}

func (s *Server) serveDatabase(ctx context.Context) (err error) {
	if s.database, err = start(s.server.Database.Serve(), filepath.Join(s.server.Dir, "mariadb.log")); err != nil {
		return err
	}
	return s.database.await(ctx, func(ctx context.Context) error {
		c, err := new(net.Dialer).DialContext(ctx, "unix", s.server.Database.Socket)
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// Run starts neutron-server, also again after Stop, and returns when it answers and can make ports:
// it answers before it has made the group of ports without security groups, which ports need.
func (s *Server) Run(ctx context.Context) (err error) {
	if s.python, err = start(s.server.Command(s.config), s.log()); err != nil {
		return err
	}
	if err := s.python.answers(ctx, s.server.Ready()); err != nil {
		return err
	}
	return s.python.await(ctx, func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, "ovn-nbctl", "--timeout=10", "--db="+s.server.Northbound, "--bare",
			"--columns=name", "find", "port_group", "name=neutron_pg_drop").CombinedOutput()
		if err == nil && len(bytes.TrimSpace(out)) == 0 {
			err = errors.New("there is no port group neutron_pg_drop yet")
		}
		if err != nil {
			err = fmt.Errorf("ovn-nbctl: %w: %s", err, out)
		}
		return err
	})
}

// Stop kills neutron-server, as kill -9 does, and waits until it is gone. Its database stays.
func (s *Server) Stop() {
	s.python.stop()
	s.python = nil
}

// Close ends all.
func (s *Server) Close() {
	s.Stop()
	s.database.stop()
	s.database = nil
}

// Configuration is the server's file, which Neutron's other programs take, too.
func (s *Server) Configuration() string { return s.config }

func (s *Server) log() string { return filepath.Join(s.server.Dir, "neutron-server.log") }

// Log is the first error of the server's log, and its end, at most 8 kB each.
func (s *Server) Log() string { return end(s.log()) }

func end(log string) string {
	const most = 8192
	text, err := os.ReadFile(log)
	if err != nil {
		return fmt.Sprint(err)
	}
	last := string(text[max(0, len(text)-most):])
	if i := bytes.Index(text, []byte(" ERROR ")); i >= 0 {
		last = string(text[i:min(i+most, len(text))]) + "\n…\n" + last
	}
	return last
}
