// SPDX-License-Identifier: Apache-2.0

package child

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// asParent has the test's program start another one, say its ID, and wait to be killed.
const asParent = "COELAN_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(asParent) == "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("cat")
	if _, err := cmd.StdinPipe(); err != nil {
		panic(err)
	}
	if err := Start(cmd); err != nil {
		panic(err)
	}
	fmt.Println(cmd.Process.Pid)
	select {}
}

// A program goes on when the thread ends that asked for it.
func TestOutlivesThreads(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	thread := 0
	onOtherThread(func() { thread, err = unix.Gettid(), Start(cmd) })
	if err != nil {
		t.Fatal(err)
	}
	for unix.Tgkill(os.Getpid(), thread, 0) == nil {
		runtime.Gosched()
	}
	fmt.Fprintln(in, "still here")
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "still here\n" {
		t.Errorf("%q, %v", line, err)
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// onOtherThread does something on a thread that ends then. The process's first one does not.
func onOtherThread(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
		if unix.Gettid() == os.Getpid() {
			onOtherThread(do)
			return
		}
		do()
	}()
	<-done
}

// A program ends when the one that started it is killed.
func TestEndsWithItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), asParent+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	child, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(child)
	_ = parent.Process.Kill()
	_ = parent.Wait() // it was killed
	const milliseconds = 10_000
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(child), Events: unix.POLLIN}}, milliseconds); n != 1 {
		t.Errorf("the program has not ended: %v", err)
	}
}

// What cannot be started is an error.
func TestNothingToStart(t *testing.T) {
	if err := Run(exec.Command("/nothing/is/here")); err == nil {
		t.Error("no error")
	}
}

// A program that has ended leaves no goroutine.
func TestLeavesNothing(t *testing.T) {
	for range 20 {
		if err := Run(exec.Command("true")); err != nil {
			t.Fatal(err)
		}
	}
	goleak.VerifyNone(t)
}
