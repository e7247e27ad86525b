// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var addresses = cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})

// writtenFile returns the bytes of a state file, and what the store held after each
// of its lines.
func writtenFile(t *testing.T) (lines [][]byte, held [][]Attachment) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path)
	held = append(held, nil, s.List()) // before and after the line with the format
	for i := range 12 {
		a := mustAllocate(t, s, fmt.Sprintf("c%d", i))
		held = append(held, s.List())
		if i%4 == 0 {
			if _, err := s.Release(a.Key); err != nil {
				t.Fatal(err)
			}
			held = append(held, s.List())
		}
	}
	s.Close()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines = bytes.SplitAfter(data, []byte("\n"))
	lines = lines[:len(lines)-1] // what follows the last line: nothing
	if len(lines) != len(held)-1 {
		t.Fatalf("%d lines for %d commits", len(lines), len(held)-1)
	}
	return lines, held
}

func openBytes(t *testing.T, data []byte) (*Store, string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := open(path, 0)
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, path, err
}

// A power loss leaves a part of the line that was being written, maybe with blocks
// that read as zeros: what was acknowledged before is there, and the store works.
func TestTornCommitIsForgotten(t *testing.T) {
	lines, held := writtenFile(t)
	last := lines[len(lines)-1]
	before := bytes.Join(lines[:len(lines)-1], nil)
	for cut := 0; cut < len(last); cut += 5 {
		tails := map[string][]byte{
			"cut off": last[:cut],
			"zeros":   append(bytes.Clone(last[:cut]), make([]byte, len(last)-cut)...),
		}
		if (len(before)+cut)%512 == 0 { // the disk writes sectors, in any order
			tails["zeros, then the end"] = append(make([]byte, cut), last[cut:]...)
		}
		for name, tail := range tails {
			s, path, err := openBytes(t, append(bytes.Clone(before), tail...))
			if err != nil {
				t.Fatalf("%s at %d: %v", name, cut, err)
			}
			if diff := cmp.Diff(held[len(held)-2], s.List(), addresses); diff != "" {
				t.Fatalf("%s at %d (-want +got):\n%s", name, cut, diff)
			}
			if cut%60 != 0 {
				continue
			}
			a := mustAllocate(t, s, "after")
			s.Close()
			s, err = open(path, 0)
			if err != nil {
				t.Fatalf("%s at %d, after one more commit: %v", name, cut, err)
			}
			if _, ok := s.Get(a.Key); !ok {
				t.Fatalf("%s at %d: the commit after it is lost", name, cut)
			}
			s.Close()
		}
	}
}

// A changed byte anywhere is found, and the message names the file and the line.
func TestChangedByteIsFound(t *testing.T) {
	lines, _ := writtenFile(t)
	data := bytes.Join(lines, nil)
	line := 1
	for i := range data[:len(data)-1] { // without its end, the last line is a torn one
		if data[i] == '\n' {
			line++
		} else if i%23 != 0 {
			continue
		}
		bad := bytes.Clone(data)
		bad[i] ^= 1 << (i % 7)
		_, path, err := openBytes(t, bad)
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			t.Fatalf("byte %d: error %v, want a *CorruptError", i, err)
		}
		if corrupt.Path != path || corrupt.Line != line && data[i] != '\n' {
			t.Fatalf("byte %d: %v\nwant line %d", i, err, line)
		}
	}
}

func TestDamagedFiles(t *testing.T) {
	lines, _ := writtenFile(t)
	newLine := func(c ...change) []byte {
		line, err := encodeLine(c)
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	for _, tt := range []struct {
		name string
		data [][]byte
		want string
	}{
		{"not ours", [][]byte{[]byte("hello, world\n")}, "line 1: checksum does not match"},
		{"a page of zeros in the middle", [][]byte{lines[0], make([]byte, 4096), lines[2], lines[3]}, "line 2: checksum"},
		{"a line missing", append(bytes.SplitAfter(lines[0], nil), lines[2:]...), "line 2: attachment c0/eth0 is removed and was not there"},
		{"a line twice", [][]byte{lines[0], lines[1], lines[1]}, "line 3: attachment c0/eth0 is there twice"},
		{"no format", lines[1:], "line 1: has format 0, this release reads 1"},
		{"another format", [][]byte{newLine(change{Format: 2}), lines[1]}, "line 1: a newer release of Coelan wrote it in format 2"},
		{"an empty entry", [][]byte{lines[0], newLine(change{})}, "line 2: an entry that is empty"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, path, err := openBytes(t, bytes.Join(tt.data, nil))
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("Open: %v\nwant it to name %s and %q", err, path, tt.want)
			}
		})
	}
}

// The file is replaced when most of it is history, and loses nothing by that.
func TestLongLifeInASmallFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path)
	for i := range 20 {
		mustAllocate(t, s, fmt.Sprintf("there-%d", i))
	}
	if err := s.SaveObjects(kindNode, map[string][]byte{"n1": []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		a := mustAllocate(t, s, fmt.Sprintf("c%d", i))
		if i < 1990 {
			if _, err := s.Release(a.Key); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, at := s.List(), s.cursors.clone()
	s.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > replaceAbove+64<<10 {
		t.Errorf("the file has %d bytes after 4000 commits and 30 attachments", info.Size())
	}
	s = openTest(t, path)
	if diff := cmp.Diff(want, s.List(), addresses); diff != "" {
		t.Errorf("attachments (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(at, s.cursors, addresses); diff != "" {
		t.Errorf("cursors (-want +got):\n%s", diff)
	}
	if nodes := s.Objects(kindNode); len(nodes) != 1 {
		t.Errorf("saved nodes: %v, want n1", nodes)
	}
}

func TestClosedStoreRefusesChanges(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "state.db"))
	s.Close()
	_, err := s.Allocate(request("c1"))
	var werr *WriteError
	if !errors.As(err, &werr) {
		t.Errorf("Allocate after Close: %v, want a *WriteError", err)
	}
	if len(s.addresses)+len(s.ports)+len(s.macs)+len(s.pending) != 0 {
		t.Error("a failed Allocate keeps addresses or ports reserved")
	}
}
