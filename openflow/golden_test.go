// SPDX-License-Identifier: Apache-2.0

package openflow

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Golden files hold what Open vSwitch's own tools made: for each case a line "> " with what
// ovs-ofctl was given, a line with the bytes that it sent, and lines "= " with what its
// ofp-print makes of them. "go generate" records them anew.

//go:generate go test -tags integration -run "TestGoldenIsCurrent|TestReplies" -count 1 . -update

// golden is one case of a golden file.
type golden struct {
	input string
	wire  []byte
	text  string
}

// readGolden reads testdata/NAME.golden.
func readGolden(t testing.TB, name string) (cases []golden) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".golden"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "> "):
			cases = append(cases, golden{input: line[2:]})
		case strings.HasPrefix(line, "="):
			c := &cases[len(cases)-1]
			c.text = strings.TrimPrefix(c.text+"\n"+strings.TrimPrefix(line[1:], " "), "\n")
		case line != "" && line[0] != '#':
			c := &cases[len(cases)-1]
			if c.wire, err = hex.DecodeString(line); err != nil {
				t.Fatalf("%s: %v", c.input, err)
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return cases
}

// goldenFiles are all golden files.
var goldenFiles = []string{"matches", "actions", "groups", "meters", "requests", "replies"}

func TestGoldenDecodeEncode(t *testing.T) {
	for _, file := range goldenFiles {
		for _, c := range readGolden(t, file) {
			xid, m, err := Decode(c.wire)
			if err != nil {
				t.Errorf("%s: %s: %v", file, c.input, err)
				continue
			}
			got, err := AppendMessage(nil, xid, m)
			if err != nil {
				t.Errorf("%s: %s: %v", file, c.input, err)
			}
			if diff := cmp.Diff(hex.EncodeToString(c.wire), hex.EncodeToString(got)); diff != "" && !lossy(c.wire, m) {
				t.Errorf("%s: %s: decoded and encoded (-Open vSwitch +ours):\n%s", file, c.input, diff)
			}
		}
	}
}

// lossy reports whether this package encodes m in another way than it came: without the
// speeds of ports, and in Nicira's form of a packet-in.
func lossy(wire []byte, m Message) bool {
	switch m := m.(type) {
	case *PortStatus:
		return true
	case *PacketIn2:
		return wire[1] == typePacketIn
	case *MultipartReply:
		switch m.Body.(type) {
		case PortDescs, PortStats:
			return true
		}
	}
	return false
}

// TestGoldenText compares our text form with that of ofp-print.
func TestGoldenText(t *testing.T) {
	for _, file := range []string{"matches", "actions"} {
		for _, c := range readGolden(t, file) {
			_, m, err := Decode(c.wire)
			if err != nil {
				t.Errorf("%s: %v", c.input, err)
				continue
			}
			f := &m.(*FlowMod).Flow
			match, actions := goldenFlowText(c.text)
			if got := f.Match.String(); got != match {
				t.Errorf("%s: match\n got %s\nwant %s", c.input, got, match)
			}
			if got := f.instructionsString(); got != actions && !strings.Contains(got, "unknown(") {
				t.Errorf("%s: actions\n got %s\nwant %s", c.input, got, actions)
			}
		}
	}
}

// goldenFlowText takes match and actions out of what ofp-print makes of a flow mod.
func goldenFlowText(s string) (match, actions string) {
	head, actions, _ := strings.Cut(s, "actions=")
	for _, word := range strings.Fields(head)[1:] {
		switch {
		case strings.HasPrefix(word, "priority="):
			_, match, _ = strings.Cut(word, ",")
		case !strings.Contains(word, ":") || strings.ContainsAny(word, "="):
			if !strings.Contains("send_flow_rem check_overlap reset_counts no_packet_counts no_byte_counts", word) {
				match = word
			}
		}
	}
	return match, actions
}

// TestGoldenParse reads what ovs-ofctl was given and compares bytes, and reads the text that
// ofp-print printed.
func TestGoldenParse(t *testing.T) {
	for _, file := range []string{"matches", "actions"} {
		for _, c := range readGolden(t, file) {
			xid, m, err := Decode(c.wire)
			if err != nil {
				t.Errorf("%s: %v", c.input, err)
				continue
			}
			mod := m.(*FlowMod)
			if mod.Command != FlowAdd || strings.Contains(ActionsString(mod.Flow.Actions), "unknown(") {
				continue
			}
			f, err := ParseFlow(mod.Flow.String())
			if err != nil {
				t.Errorf("%s: our own text: %v", c.input, err)
				continue
			}
			got, err := AppendMessage(nil, xid, AddFlow(f))
			if err != nil {
				t.Errorf("%s: %v", c.input, err)
			}
			if diff := cmp.Diff(hex.EncodeToString(c.wire), hex.EncodeToString(got)); diff != "" {
				t.Errorf("%s: parsed and encoded (-Open vSwitch +ours):\n%s", c.input, diff)
			}
			if err := f.Match.Validate(); err != nil {
				t.Errorf("%s: %v", c.input, err)
			}
		}
	}
}

// kindOfMessage names the type of a message, of a multipart one that of its body.
func kindOfMessage(m Message) string {
	switch m := m.(type) {
	case *MultipartReply:
		return fmt.Sprintf("%T", m.Body)
	case *MultipartRequest:
		return fmt.Sprintf("%T", m.Body)
	}
	return fmt.Sprintf("%T", m)
}
