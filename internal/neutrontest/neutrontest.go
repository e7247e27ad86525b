// SPDX-License-Identifier: Apache-2.0

// Package neutrontest runs a real neutron-server for tests, in a directory of its own and on a free
// port of the loopback interface: ML2 with the mechanism driver of OVN, SQLite, and no keystone. It
// needs the Debian packages of hack/packages-neutron.txt.
package neutrontest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"coelan.io/coelan/internal/ovntest"
)

// Project is the one that Servers' resources are of. Without keystone any name is one.
const Project = "coelan"

// startTimeout bounds the start of a server: Python reads some thousand files.
const startTimeout = 2 * time.Minute

// schema makes the tables. Neutron's own migrations alter constraints, which SQLite cannot.
const schema = `
import sys, sqlalchemy
from neutron.db.migration.models import head
head.get_metadata().create_all(sqlalchemy.create_engine(sys.argv[1]))
`

//go:embed neutron.conf.tmpl
var configuration string

// Server is a neutron-server.
type Server struct {
	// Endpoint is its URL, which ends with a slash.
	Endpoint string

	dir    string
	config string
	cmd    *exec.Cmd
	exited chan struct{}
}

// Options say which databases of OVN a Server works with, and where its files are.
type Options struct {
	Northbound, Southbound string // such as unix:/run/nb.sock
	Dir                    string
}

// Start runs a Server with the databases of OVN, of which ovn-northd has to run, until the test
// ends.
func Start(t testing.TB, o *ovntest.OVN) *Server {
	t.Helper()
	s, err := New(t.Context(), Options{Northbound: o.Remote("nb"), Southbound: o.Remote("sb"), Dir: t.TempDir()})
	if s != nil {
		t.Cleanup(func() {
			s.Stop()
			if t.Failed() {
				t.Logf("neutron-server's log ends:\n%s", s.Log())
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// New makes a Server's files and starts it. It must be stopped also after an error, unless it is
// nil.
func New(ctx context.Context, o Options) (*Server, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: o.Dir, config: filepath.Join(o.Dir, "neutron.conf"),
		Endpoint: fmt.Sprintf("http://127.0.0.1:%d/", port)}
	var text strings.Builder
	if err := template.Must(template.New("").Parse(configuration)).Execute(&text, map[string]any{
		"Dir": o.Dir, "Port": port, "Database": s.database(), "Northbound": o.Northbound, "Southbound": o.Southbound,
	}); err != nil {
		return nil, err
	}
	if err := os.WriteFile(s.config, []byte(text.String()), 0o600); err != nil {
		return nil, err
	}
	for _, args := range [][]string{
		{"/usr/bin/python3", "-c", schema, s.database()},
		{"neutron-db-manage", "--config-file", s.config, "stamp", "heads"},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("neutron's database: %s: %w: %s", args[0], err, out)
		}
	}
	return s, s.Run(ctx)
}

func (s *Server) database() string { return "sqlite:///" + filepath.Join(s.dir, "neutron.sqlite") }

// freePort is one of the loopback interface that nothing listens on.
func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Run starts the server, also again after Stop, and returns when it answers.
func (s *Server) Run(ctx context.Context) error {
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("neutron-server", "--config-file", s.config)
	cmd.Stdout, cmd.Stderr = log, log
	// It has children, which end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	s.cmd, s.exited = cmd, make(chan struct{})
	started := make(chan error, 1)
	go func() {
		defer close(s.exited)
		// Pdeathsig is about the thread that starts the server: it has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed
		}
	}()
	if err := <-started; err != nil {
		s.cmd = nil
		return fmt.Errorf("neutron-server: %w", err)
	}
	return s.await(ctx)
}

// interval is the time between two looks at a server that starts: it has no other way to say that
// it answers.
const interval = 50 * time.Millisecond

func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+"v2.0/networks?limit=1", http.NoBody)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("neutron-server does not answer: %w: %s", errors.Join(err, ctx.Err()), s.Log())
		case <-s.exited:
			return fmt.Errorf("neutron-server has ended: %s", s.Log())
		case <-tick.C:
		}
	}
}

// Stop kills the server, as kill -9 does, and waits until it is gone.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) // fails only if all are gone already
	<-s.exited
	s.cmd = nil
}

// Configuration is the server's file, which Neutron's other programs take, too.
func (s *Server) Configuration() string { return s.config }

func (s *Server) log() string { return filepath.Join(s.dir, "neutron-server.log") }

// Log is the end of the server's log, at most 8 kB.
func (s *Server) Log() string {
	const end = 8192
	text, err := os.ReadFile(s.log())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-end):])
}
