// SPDX-License-Identifier: Apache-2.0

//go:build integration

package openflow

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestPrintAgreement encodes generated flows and groups, lets ovs-ofctl print them, and
// compares that with our own text.
func TestPrintAgreement(t *testing.T) {
	flows := rapid.Custom(genFlow)
	var b []byte
	var want []string
	for i := range 2000 {
		f := flows.Example(i)
		if len(f.Match.Fields()) > 0 && find(f.Match.Fields(), FieldTunMetadata0) != nil {
			continue // ovs-ofctl does not know the length of the option
		}
		var err error
		if b, err = AppendMessage(b, uint32(i), AddFlow(f)); err != nil {
			t.Fatal(err)
		}
		want = append(want, f.Match.String()+" actions="+f.instructionsString())
	}
	got := printed(t, b)
	if len(got) != len(want) {
		t.Fatalf("%d flows, but %d printed", len(want), len(got))
	}
	for i := range want {
		_, line, _ := strings.Cut(got[i], "): ")
		match, actions := goldenFlowText(line)
		if text := match + " actions=" + actions; text != want[i] {
			t.Errorf("ovs-ofctl %s\nwe        %s", text, want[i])
		}
	}
}

func TestPrintAgreementOfGroups(t *testing.T) {
	kind := packetKinds[1]
	groups := rapid.Custom(func(t *rapid.T) Group {
		g := Group{ID: rapid.Uint32Range(0, GroupMax).Draw(t, "id"), Type: GroupType(rapid.IntRange(0, 1).Draw(t, "type"))}
		for i := range rapid.IntRange(1, 4).Draw(t, "buckets") {
			k := Bucket{ID: uint32(i), Actions: []Action{
				SetField(genFieldValue(t, rapid.SampledFrom(kind.fields).Draw(t, "field"), true)), Resubmit(5)}}
			if g.Type == GroupSelect {
				k.Weight = rapid.Uint16Range(0, 3).Draw(t, "weight")
			}
			g.Buckets = append(g.Buckets, k)
		}
		if g.Type == GroupSelect {
			g.SelectionMethod = rapid.SampledFrom([]string{"", "dp_hash", "hash"}).Draw(t, "method")
		}
		if g.SelectionMethod != "" {
			g.SelectionParam = rapid.Uint64Range(0, 3).Draw(t, "param")
		}
		if g.SelectionMethod == "hash" {
			g.SelectionFields = HashOn(FieldIPv4Src, FieldIPv4Dst)
		}
		return g
	})
	var b []byte
	var want []string
	for i := range 500 {
		g := groups.Example(i)
		var err error
		if b, err = AppendMessage(b, uint32(i), AddGroup(g)); err != nil {
			t.Fatal(err)
		}
		want = append(want, g.String())
	}
	for i, line := range printed(t, b) {
		if _, got, _ := strings.Cut(line, "ADD "); got != want[i/2] && i%2 == 1 {
			t.Errorf("ovs-ofctl %s\nwe        %s", got, want[i/2])
		}
	}
}

// printed returns what ovs-ofctl prints of messages, in lines.
func printed(t *testing.T, messages []byte) []string {
	file := filepath.Join(t.TempDir(), "messages")
	if err := os.WriteFile(file, messages, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ovs-ofctl", "--no-names", "ofp-parse", file).Output()
	if err != nil {
		t.Fatalf("ovs-ofctl ofp-parse: %v: %s", err, out)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}
