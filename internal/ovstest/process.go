// SPDX-License-Identifier: Apache-2.0

package ovstest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// process is one daemon. exited is closed when it is gone and reaped.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// StartDB starts ovsdb-server and waits until its socket is there.
func (o *OVS) StartDB(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	os.Remove(o.DBSocket()) // left by a kill; its creation is what is waited for
	p, err := o.daemon("ovsdb-server", filepath.Join(o.Dir, "conf.db"), "--remote=punix:"+o.DBSocket(),
		"--remote=db:Open_vSwitch,Open_vSwitch,manager_options")
	if err != nil {
		return err
	}
	o.db = p
	if err := o.waitFile(ctx, p, o.DBSocket()); err != nil {
		return fmt.Errorf("ovsdb-server: %w; log ends:\n%s", err, o.LogTail("ovsdb-server"))
	}
	_, err = o.Vsctl(ctx, "--retry", "--no-wait", "init")
	return err
}

// StartVswitchd starts ovs-vswitchd and waits until it has applied the
// database's configuration.
func (o *OVS) StartVswitchd(ctx context.Context) error {
	if err := o.SpawnVswitchd(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	go func(p *process) {
		select {
		case <-p.exited:
			cancel()
		case <-ctx.Done():
		}
	}(o.vswitchd)
	// A change of the database makes ovs-vsctl wait for ovs-vswitchd. It must be one also for a
	// database that an earlier Open vSwitch of the test has left.
	if _, err := o.Vsctl(ctx, "set", "open_vswitch", ".",
		fmt.Sprintf("external_ids:ovstest=%d", time.Now().UnixNano())); err != nil {
		return fmt.Errorf("ovs-vswitchd did not configure itself: %w; log ends:\n%s", err, o.LogTail("ovs-vswitchd"))
	}
	return nil
}

// SpawnVswitchd starts ovs-vswitchd and waits for nothing.
func (o *OVS) SpawnVswitchd() error {
	p, err := o.daemon("ovs-vswitchd", append(slices.Clone(o.args), "unix:"+o.DBSocket())...)
	if err != nil {
		return err
	}
	o.vswitchd = p
	return nil
}

// KillVswitchd kills ovs-vswitchd as kill -9 does and waits until it is gone.
func (o *OVS) KillVswitchd() {
	o.vswitchd.kill(syscall.SIGKILL)
	o.vswitchd = nil
}

// StopVswitchd asks ovs-vswitchd to exit, as a package upgrade does, and waits
// until it is gone.
func (o *OVS) StopVswitchd() {
	o.vswitchd.kill(syscall.SIGTERM)
	o.vswitchd = nil
}

// KillDB kills ovsdb-server as kill -9 does and waits until it is gone.
func (o *OVS) KillDB() {
	o.db.kill(syscall.SIGKILL)
	o.db = nil
}

// Restart kills both daemons as a crash does and starts them again.
func (o *OVS) Restart(ctx context.Context) error {
	o.KillVswitchd()
	o.KillDB()
	if err := o.StartDB(ctx); err != nil {
		return err
	}
	return o.StartVswitchd(ctx)
}

// LogTail is the end of a daemon's log, at most 4 kB.
func (o *OVS) LogTail(daemon string) string {
	log, err := os.ReadFile(filepath.Join(o.Dir, daemon+".log"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(log[max(0, len(log)-4096):]))
}

func (o *OVS) daemon(name string, args ...string) (*process, error) {
	cmd := o.Command(context.Background(), name, append(args,
		"--pidfile="+filepath.Join(o.Dir, name+".pid"),
		"--log-file="+filepath.Join(o.Dir, name+".log"), "-vconsole:off")...)
	if err := o.ns.Start(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the status of a killed daemon says nothing
		close(p.exited)
	}()
	return p, nil
}

func (p *process) kill(sig syscall.Signal) {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(sig) // fails only if it is gone already
	<-p.exited
}

// waitFile waits until path exists, p exits or ctx ends.
func (o *OVS) waitFile(ctx context.Context, p *process, path string) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.Add(filepath.Dir(path)); err != nil {
		return err
	}
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case <-w.Events:
		case err := <-w.Errors:
			return err
		case <-p.exited:
			return fmt.Errorf("exited before it made %s", path)
		case <-ctx.Done():
			return fmt.Errorf("%s did not appear: %w", path, ctx.Err())
		}
	}
}
