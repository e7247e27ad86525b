// SPDX-License-Identifier: Apache-2.0

// Package vm runs virtual machines on the networks of tests: Debian's kernel
// and busybox under qemu, which emulates the processor. A machine has one
// interface, at a tap that the caller has made, and no disk.
package vm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"coelan.io/coelan/test/debian"
)

// Config is a machine.
type Config struct {
	// Name is its host name, and what its web server answers to /hostname.
	Name string
	// Tap is the interface, in the network namespace that Command enters.
	Tap string
	MAC net.HardwareAddr
	// MTU of its interface in bytes; 0: 1500.
	MTU int
	// Addresses and Gateways are its network from the start; no DHCP client asks for others.
	Addresses []netip.Prefix
	Gateways  []netip.Addr
	// Kernel to boot.
	Kernel debian.Kernel
	// Dir is for the machine's files. Programs that Command starts see it, too.
	Dir string
	// Command makes the command that runs a program where the tap is. The end
	// of its context must end the program.
	Command func(ctx context.Context, args ...string) (*exec.Cmd, error)
}

// Machine is a running virtual machine.
type Machine struct {
	console string
	cmd     *exec.Cmd
	cancel  context.CancelFunc
	shell   *shell
}

// bootTimeout is for a busy computer: an idle one takes 5 s.
const bootTimeout = 90 * time.Second

// Start boots a machine and returns when it has its addresses and serves HTTP on port 80:
// /hostname, and /cgi-bin/clientip, which answers the client's address. It runs until Stop, or
// until the context ends.
func Start(ctx context.Context, c Config) (*Machine, error) {
	image, err := c.initramfs()
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", c.Name, err)
	}
	initrd, console := filepath.Join(c.Dir, "initramfs"), filepath.Join(c.Dir, "console")
	if err := os.WriteFile(initrd, image, 0o644); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	m := &Machine{console: console, cancel: cancel}
	if err := m.start(ctx, c, initrd); err != nil {
		cancel()
		return nil, fmt.Errorf("machine %s: %w", c.Name, err)
	}
	ready, stop := context.WithTimeout(ctx, bootTimeout)
	defer stop()
	if err := m.shell.wait(ready, "vm:ready"); err != nil {
		log, _ := os.ReadFile(console)
		m.Stop()
		return nil, fmt.Errorf("machine %s does not boot: %w; its console: %s", c.Name, err, log)
	}
	return m, nil
}

func (m *Machine) start(ctx context.Context, c Config, initrd string) (err error) {
	if m.cmd, err = c.Command(ctx, c.args(initrd, m.console)...); err != nil {
		return err
	}
	in, err := m.cmd.StdinPipe()
	if err != nil {
		return err
	}
	// Not StdoutPipe, which Wait would close during a read.
	r, w := io.Pipe()
	m.cmd.Stdout, m.cmd.WaitDelay = w, time.Second
	var stderr strings.Builder
	m.cmd.Stderr = &stderr
	if err := m.cmd.Start(); err != nil {
		return err
	}
	m.shell = newShell(in, r)
	go func() {
		err := errors.Join(errors.New("qemu ended"), m.cmd.Wait())
		w.CloseWithError(fmt.Errorf("%w: %s", err, stderr.String()))
	}()
	return nil
}

// args is qemu's command line. With vnet_hdr the machine would leave checksums
// to others, and the userspace datapath of Open vSwitch would pass them on
// unfinished. Without no_timer_check a guest that does not get the processor in time
// takes its timer for broken, and panics.
func (c Config) args(initrd, console string) []string {
	return []string{
		"qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-M", "q35", "-smp", "1", "-m", "128",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", c.Kernel.Image(), "-initrd", initrd,
		"-append", "console=ttyS0 loglevel=5 panic=-1 mitigations=off tsc=reliable no_timer_check",
		"-serial", "file:" + console,
		// Not a second UART: its FIFO of 16 bytes overflows on a busy machine.
		"-device", "virtio-serial-pci", "-chardev", "stdio,id=shell,signal=off", "-device",
		"virtserialport,chardev=shell",
		"-device", "virtio-rng-pci",
		"-netdev", "tap,id=eth0,ifname=" + c.Tap + ",script=no,downscript=no,vnet_hdr=off",
		"-device", "virtio-net-pci,netdev=eth0,mac=" + c.MAC.String() + ",romfile=",
	}
}

// Run runs a line of shell in the machine and returns what it printed. One that does not end by
// itself must be bounded, by `timeout 5 …`: the machine can do only one at a time.
func (m *Machine) Run(ctx context.Context, line string) (string, error) {
	return m.shell.run(ctx, line)
}

// Stop is a power cut. It returns when the machine is gone.
func (m *Machine) Stop() {
	m.cancel()
	m.shell.drain()
}

// shell talks to serve.sh.
type shell struct {
	in    io.Writer
	lines chan string
	err   error // once lines is closed
}

func newShell(in io.Writer, out io.Reader) *shell {
	s := &shell{in: in, lines: make(chan string)}
	go func() {
		scanner := bufio.NewScanner(out)
		for scanner.Scan() {
			s.lines <- scanner.Text()
		}
		s.err = scanner.Err()
		close(s.lines)
	}()
	return s
}

// next is the next line.
func (s *shell) next(ctx context.Context) (string, error) {
	select {
	case line, ok := <-s.lines:
		if !ok {
			return "", errors.Join(io.ErrUnexpectedEOF, s.err)
		}
		return line, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// wait reads until the line comes.
func (s *shell) wait(ctx context.Context, want string) error {
	for {
		line, err := s.next(ctx)
		if err != nil || line == want {
			return err
		}
	}
}

func (s *shell) run(ctx context.Context, command string) (string, error) {
	if strings.Contains(command, "\n") {
		return "", fmt.Errorf("%q is more than one line", command)
	}
	if _, err := io.WriteString(s.in, command+"\n"); err != nil {
		return "", fmt.Errorf("%s: %w", command, err)
	}
	var out []string
	for {
		line, err := s.next(ctx)
		text := strings.TrimSpace(strings.Join(out, "\n"))
		if err != nil {
			return text, fmt.Errorf("%s: %w, after %q", command, err, text)
		}
		if status, ok := strings.CutPrefix(line, "vm:exit "); ok {
			if n, err := strconv.Atoi(status); err != nil || n != 0 {
				return text, fmt.Errorf("%s: exit status %s: %s", command, status, text)
			}
			return text, nil
		}
		out = append(out, line)
	}
}

// drain reads what is left until the program has ended.
func (s *shell) drain() {
	for range s.lines {
		continue
	}
}
