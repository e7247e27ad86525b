// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// crashEnv has the test binary write a file again and again until it is killed.
const crashEnv = "COELAN_STATEFILE_CRASH"

// version is the content of the file after the nth write: a length of its own, and the number from
// end to end.
func version(n int) []byte { return bytes.Repeat([]byte(strconv.Itoa(n)+"\n"), 2000+n) }

func TestMain(m *testing.M) {
	if path := os.Getenv(crashEnv); path != "" {
		writeForEver(path)
	}
	os.Exit(m.Run())
}

func writeForEver(path string) {
	for n := 1; ; n++ {
		err := Write(path, func(f *os.File) error {
			for part := range bytes.Lines(version(n)) {
				if _, err := f.Write(part); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println(n)
	}
}

// TestCrash kills a process at any of the steps of Write: the file holds the last content that was
// acknowledged, or the next one, and is whole.
func TestCrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	for round := range 20 {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), crashEnv+"="+path)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		acknowledged, lines := 0, bufio.NewScanner(out)
		for lines.Scan() {
			n, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Fatal(lines.Text())
			}
			acknowledged = n
			if n == 1+round%4 {
				// Anywhere in the writes that go on meanwhile.
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = child.Wait() // killed
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(data), "\n")
		n, err := strconv.Atoi(first)
		if err != nil || n < acknowledged || n > acknowledged+1 || !bytes.Equal(data, version(n)) {
			t.Fatalf("the file has %d bytes of content %q after %d writes", len(data), first, acknowledged)
		}
	}
}

// TestReplace appends to a file that has taken the place of another one.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := Write(path, text("old")); err != nil {
		t.Fatal(err)
	}
	if f, err := Replace(filepath.Join(dir, "none", "a"), text("")); f != nil || err == nil {
		t.Errorf("no directory: %v, %v", f, err)
	}
	f, err := Replace(path, text("new"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := text(" and more")(f); err != nil {
		t.Fatal(err)
	}
	holds(t, dir, map[string]string{"a": "new and more"})
}

func TestWriteMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	for _, mode := range []os.FileMode{0o666, 0o755, 0o600} { // the umask would cut the first
		if err := WriteBytes(path, mode, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("mode %v, %v, want %v", info.Mode(), err, mode)
		}
	}
}
