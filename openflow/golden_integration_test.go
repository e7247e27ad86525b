// SPDX-License-Identifier: Apache-2.0

//go:build integration

package openflow

import (
	"bytes"
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGoldenIsCurrent records what the installed ovs-ofctl sends and compares it with the
// golden files, or writes them.
func TestGoldenIsCurrent(t *testing.T) {
	for _, file := range []string{"matches", "actions"} {
		compareGolden(t, file, recordFlows(t, inputs(t, file)))
	}
	for _, file := range []string{"groups", "meters", "requests"} {
		var cases []golden
		for _, input := range inputs(t, file) {
			cases = append(cases, recordCommand(t, input)...)
		}
		compareGolden(t, file, cases)
	}
}

// inputs reads testdata/NAME.txt: a case per line.
func inputs(t *testing.T, file string) (lines []string) {
	b, err := os.ReadFile(filepath.Join("testdata", file+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

// compareGolden compares cases with a golden file, or writes it.
func compareGolden(t *testing.T, file string, cases []golden) {
	var b bytes.Buffer
	source := file + ".txt"
	if file == "replies" {
		source = "replies_integration_test.go"
	}
	fmt.Fprintf(&b, "# Recorded from Open vSwitch by go generate; the cases are in %s.\n", source)
	for _, c := range cases {
		fmt.Fprintf(&b, "\n> %s\n%x\n", c.input, c.wire)
		for line := range strings.Lines(c.text) {
			fmt.Fprintf(&b, "= %s\n", strings.TrimRight(line, " \n"))
		}
	}
	path := filepath.Join("testdata", file+".golden")
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("%s is not what this ovs-ofctl makes (-file +recorded):\n%s", path, diff)
	}
}

// recordFlows gives flow mods to ovs-ofctl and returns what it sent for each.
func recordFlows(t *testing.T, lines []string) (cases []golden) {
	file := filepath.Join(t.TempDir(), "flows.txt")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sw := newRecorder(t)
	sw.ofctl(t, "--bundle", "add-flows", sw.target(), file)
	for _, b := range sw.take() {
		if b[1] != typeBundleAdd {
			continue
		}
		inner := b[bundleAddHeader:]
		// The transaction id counts up: nothing that a golden file should depend on.
		clear(inner[4:8])
		cases = append(cases, golden{wire: inner, text: ofpPrint(t, inner)})
	}
	if len(cases) != len(lines) {
		t.Fatalf("%d flows, but %d messages", len(lines), len(cases))
	}
	for i := range cases {
		cases[i].input = lines[i]
	}
	return cases
}

// recordCommand runs an ovs-ofctl command, in which SWITCH stands for the switch, and
// returns the messages that it sent, without those that every command sends.
func recordCommand(t *testing.T, input string) (cases []golden) {
	sw := newRecorder(t)
	args, err := shellWords(input)
	if err != nil {
		t.Fatal(err)
	}
	for i, arg := range args {
		if arg == "SWITCH" {
			args[i] = sw.target()
		}
	}
	sw.ofctl(t, args...)
	for _, b := range sw.take() {
		switch b[1] {
		case typeHello, typeBarrierRequest, typeEchoRequest:
			continue
		}
		clear(b[4:8])
		cases = append(cases, golden{input: input, wire: b, text: ofpPrint(t, b)})
	}
	if len(cases) == 0 {
		t.Errorf("%s: no message", input)
	}
	return cases
}

// shellWords splits s at spaces outside of single quotes.
func shellWords(s string) (words []string, err error) {
	for i, part := range strings.Split(s, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	if strings.Count(s, "'")%2 != 0 {
		err = fmt.Errorf("%s: quote without end", s)
	}
	return words, err
}

var xidText = regexp.MustCompile(`\(xid=0x[0-9a-f]+\):?`)

// ofpPrint is what ovs-ofctl makes of a message, without the transaction id.
func ofpPrint(t *testing.T, b []byte) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ovs-ofctl", "--no-names", "ofp-print", hex.EncodeToString(b)).Output()
	if err != nil {
		t.Fatalf("ovs-ofctl ofp-print: %v: %s", err, out)
	}
	s := xidText.ReplaceAllString(string(out), "")
	if i := strings.Index(s, "\n00000000 "); i >= 0 {
		s = s[:i] // a dump of the bytes
	}
	return strings.TrimSpace(strings.TrimPrefix(s, "OFPT_FLOW_MOD (OF1.5) "))
}
