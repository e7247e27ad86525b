// SPDX-License-Identifier: Apache-2.0

package neutrontest

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
)

// process is a program that runs, with its children.
type process struct {
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
}

// start runs a program and adds its output to the file log. It does not outlive the tests.
func start(args []string, log string) (*process, error) {
	output, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // children end with it
	if err := child.Start(cmd); err != nil {
		return nil, fmt.Errorf("%s: %w", args[0], err)
	}
	p := &process{cmd: cmd, log: log, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		_ = cmd.Wait() // it is killed
	}()
	return p, nil
}

// interval is the time between two looks at a program that starts: it has no other way to say that
// it answers.
const interval = 50 * time.Millisecond

// await returns when the program answers.
func (p *process) await(ctx context.Context, answers func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	name := filepath.Base(p.cmd.Path)
	for {
		err := answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w: %s", name, errors.Join(err, ctx.Err()), end(p.log))
		case <-p.exited:
			return fmt.Errorf("%s has ended: %s", name, end(p.log))
		case <-tick.C:
		}
	}
}

// stop kills the program and its children, and waits until it is gone.
func (p *process) stop() {
	if p == nil {
		return
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // fails only if all are gone already
	<-p.exited
}
