// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"coelan.io/coelan/internal/sandbox/machine"
)

const killTimeout = 30 * time.Second

// Down ends the sandbox and removes all of it. One that is not there is no error.
func Down(ctx context.Context, name string, output io.Writer) error {
	spec, err := Spec{Name: name}.complete()
	if err != nil {
		return err
	}
	s := newSandbox(spec, output)
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return s.progress.Step("take down "+s.Name, func() error { return s.down(ctx) })
}

func (s *Sandbox) down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	// Whatever the spec says, or if it is lost: these are the machines.
	entries, err := os.ReadDir(filepath.Join(s.dir, "machines"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if err := each(ctx, names, func(ctx context.Context, name string) error {
		return machine.Kill(ctx, s.machineDir(name))
	}); err != nil {
		return err
	}
	if err := machine.RemoveCgroups(ctx, s.cgroup("")); err != nil {
		return err
	}
	if err := s.checkMounts(); err != nil {
		return err
	}
	return os.RemoveAll(s.dir)
}

// checkMounts refuses to remove a directory in which something is mounted: it
// would empty that, too.
func (s *Sandbox) checkMounts() error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], s.dir+"/") {
			return fmt.Errorf("%s is mounted: unmount it first", f[4])
		}
	}
	return nil
}
