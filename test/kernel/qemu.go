// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"coelan.io/coelan/internal/child"
	"coelan.io/coelan/test/debian"
)

// machine is one run of the virtual machine.
type machine struct {
	kernel debian.Kernel
	spec   guestSpec
	dir    string // of this run: initramfs, console log
	out    string // shared with the guest for writing
	memory int    // MiB
	cpus   int
	// counted has the guest's clock follow the instructions that its one processor runs.
	counted bool
}

// instructionTime tells the program by how much the clock of a counted machine advances with each
// instruction: 2 to the power of the shift of -icount, in nanoseconds.
const instructionTime = "COELAN_INSTRUCTION_TIME=8ns"

// Files in the directory shared for writing.
const (
	statusFile  = "status"  // the guest leaves the program's exit status there
	consoleFile = "console" // the kernel's messages
)

// boot runs the machine until it powers itself off and returns the status that the guest left. The
// program's output goes to standard output as it comes; the kernel's messages go to a file. The end
// of it is part of the error if the guest left no status.
func boot(ctx context.Context, m machine) (int, error) {
	image, err := initramfs(m.kernel, m.spec)
	if err != nil {
		return statusHarness, err
	}
	initrd, console := filepath.Join(m.dir, "initramfs"), filepath.Join(m.out, consoleFile)
	if err := os.WriteFile(initrd, image, 0o644); err != nil {
		return statusHarness, err
	}
	status := filepath.Join(m.out, statusFile)
	if err := os.Remove(status); err != nil && !errors.Is(err, os.ErrNotExist) {
		return statusHarness, err
	}
	if err := m.runQemu(ctx, initrd, console); err != nil {
		return statusHarness, fmt.Errorf("qemu: %w; the guest's console ended with\n%s", err, tail(console))
	}
	data, err := os.ReadFile(status)
	if err != nil {
		return statusHarness, fmt.Errorf("the guest stopped without an exit status; its console ended with\n%s",
			tail(console))
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return statusHarness, fmt.Errorf("exit status of the guest: %w", err)
	}
	return n, nil
}

// runQemu runs the emulator until the guest powers off.
func (m machine) runQemu(ctx context.Context, initrd, console string) error {
	// A pipe as the guest's output: qemu wants a write-only descriptor, and
	// with its own standard input and output would take the end of the input
	// for the end of the port.
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	c := exec.CommandContext(ctx, "qemu-system-x86_64", m.args(initrd, console)...)
	c.Stderr, c.ExtraFiles = os.Stderr, []*os.File{w}
	err = child.Start(c)
	w.Close()
	if err != nil {
		return err
	}
	_, copyErr := io.Copy(os.Stdout, r) // ends when qemu does
	return errors.Join(c.Wait(), copyErr)
}

// args is qemu's command line. TCG (plain emulation) because it works on
// every machine, also one that is itself virtual. The kernel's console is a
// serial port; the program's output has a virtio port of its own, so that no
// kernel message mixes with it. Without no_timer_check a guest that does not get
// the processor in time takes its timer for broken, and panics.
func (m machine) args(initrd, console string) []string {
	processor := []string{"-accel", "tcg,thread=multi", "-smp", strconv.Itoa(m.cpus)}
	if m.counted {
		// With sleep=off the clock would advance while the guest waits for its disk.
		processor = []string{"-accel", "tcg,thread=single", "-smp", "1", "-icount", "shift=3,sleep=on"}
	}
	return append(processor,
		"-cpu", "max", "-M", "q35", "-m", strconv.Itoa(m.memory),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", m.kernel.Image(), "-initrd", initrd,
		"-append", "console=ttyS0 loglevel=5 panic=-1 mitigations=off tsc=reliable no_timer_check",
		"-serial", "file:"+console,
		"-device", "virtio-rng-pci",
		"-device", "virtio-serial-pci",
		"-add-fd", "fd=3,set=1", "-chardev", "file,id=out,path=/dev/fdset/1,append=on", "-device",
		"virtserialport,chardev=out,name="+outputPort,
		"-virtfs", "local,id=root,mount_tag="+rootTag+",path=/,security_model=none,readonly=on,multidevs=remap",
		"-virtfs", "local,id=share,mount_tag="+outTag+",path="+m.out+",security_model=none")
}

// tail returns the end of a text file, for an error message.
func tail(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}
