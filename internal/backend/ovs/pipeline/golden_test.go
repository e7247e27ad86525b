// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

var update = flag.Bool("update", false, "write what the tests find into the golden files")

// Each file in testdata holds intent and the flows that it compiles to, table by
// table as ovs-ofctl prints them, with the owner and why a flow drops.
func TestFlowsGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c := New()
			got := pretty(t, c, c.Compile(parseInput(t, archive.Files[0].Data)))
			if *update {
				archive.Files = []txtar.File{archive.Files[0], {Name: "flows", Data: []byte(got)}}
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if len(archive.Files) != 2 {
				t.Fatalf("%s has no flows: run with -update", file)
			}
			if diff := gocmp.Diff(string(archive.Files[1].Data), got); diff != "" {
				t.Errorf("flows (-want +got):\n%s", diff)
			}
		})
	}
}

// parseInput reads intent.Objects as YAML, in which Ports and the uplinks of Networks have OpenFlow
// port numbers beside. Its services are what the node serves, and the default network and router
// are always there.
func parseInput(t testing.TB, text []byte) Input {
	t.Helper()
	var written map[string]any
	if err := yaml.Unmarshal(text, &written); err != nil {
		t.Fatal(err)
	}
	// cut takes the number out of each object of a kind that has one, and calls found with both.
	cut := func(kind, field string, found func(object map[string]any, number uint32)) {
		list, _ := written[kind].([]any)
		for _, o := range list {
			object := o.(map[string]any)
			if n, ok := object[field].(float64); ok {
				delete(object, field)
				found(object, uint32(n))
			}
		}
	}
	ports, uplinks := map[string]uint32{}, map[string]uint32{}
	cut("ports", "ofPort", func(o map[string]any, n uint32) { ports[o["id"].(string)] = n })
	cut("networks", "physical", func(o map[string]any, n uint32) {
		o["physical"], uplinks[physicalNetwork(n)] = physicalNetwork(n), n
	})
	neighbours := map[NeighbourKey]intent.MAC{}
	list, _ := written["neighbours"].([]any)
	delete(written, "neighbours")
	for _, o := range list {
		object := o.(map[string]any)
		mac, err := intent.ParseMAC(object["mac"].(string))
		if err != nil {
			t.Fatal(err)
		}
		neighbours[NeighbourKey{object["network"].(string), netip.MustParseAddr(object["address"].(string))}] = mac
	}
	states := map[ExternalKey]EgressState{}
	list, _ = written["egressStates"].([]any)
	delete(written, "egressStates")
	for _, o := range list {
		object := o.(map[string]any)
		silent, _ := object["silent"].(bool)
		states[ExternalKey{object["network"].(string), netip.MustParseAddr(object["address"].(string))}] =
			EgressState{Active: object["active"].(string), Silent: silent}
	}
	local, _ := written["local"].(map[string]any)
	questionRate, _ := local["questionRate"].(float64)
	delete(local, "questionRate")
	if services, ok := written["services"]; ok {
		written["nodeServices"] = services
		delete(written, "services")
	}
	text, err := yaml.Marshal(written)
	if err != nil {
		t.Fatal(err)
	}
	var o intent.Objects
	if err := yaml.UnmarshalStrict(text, &o); err != nil {
		t.Fatal(err)
	}
	return Input{State: stateOf(t, o), Numbers: NewNumbers(ports, uplinks).WithNeighbours(neighbours).WithEgress(states), NeighbourRate: uint32(questionRate)}
}

// fataler is a *testing.T or a *rapid.T.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

// stateOf makes a State of objects, the default network and router.
func stateOf(t fataler, o intent.Objects) *intent.State {
	t.Helper()
	o.Networks = append(o.Networks, intent.Network{Name: "default", ID: 1, VNI: 1, Router: "default"})
	o.Routers = append(o.Routers, intent.Router{Name: "default", ID: 1, VNI: 1})
	return stateFrom(t, o)
}

// stateFrom makes a State of these objects alone.
func stateFrom(t fataler, o intent.Objects) *intent.State {
	t.Helper()
	state, err := intent.NewStore().Update(func(tx *intent.Tx) error { tx.Replace(o); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// rulesOf lists all rules of a Desired by owner.
func rulesOf(d *bridge.Desired, c *Compiler) map[string]*bridge.Rules {
	rules := map[string]*bridge.Rules{}
	for _, u := range c.units {
		if r := d.Get(u.owner); r != nil {
			rules[u.owner] = r
		}
	}
	return rules
}

// flowsOf lists all flows of a Desired by owner.
func flowsOf(d *bridge.Desired, c *Compiler) map[string][]openflow.Flow {
	flows := map[string][]openflow.Flow{}
	for owner, r := range rulesOf(d, c) {
		flows[owner] = r.Flows
	}
	return flows
}

// pretty prints flows in the order in which a packet meets them.
func pretty(t testing.TB, c *Compiler, d *bridge.Desired) string {
	t.Helper()
	lines := map[uint8][]string{}
	var all []openflow.Flow
	for _, flows := range flowsOf(d, c) {
		all = append(all, flows...)
	}
	slices.SortFunc(all, func(a, b openflow.Flow) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Match.String(), b.Match.String()))
	})
	for _, f := range all {
		m, ok := c.Explain(f.Cookie)
		if !ok {
			t.Errorf("cookie %#x of %s is not explained", f.Cookie, f.String())
		}
		note := m.Owner
		if m.Drops() {
			note += ": " + m.Reason
		} else if m.Verdict != nil {
			note += ": " + m.Verdict.String()
		}
		table := f.Table
		f.Cookie, f.Table = 0, 0 // as little to read as can be
		lines[table] = append(lines[table], fmt.Sprintf("%s\n    # %s", strings.TrimSpace(f.String()), note))
	}
	var b strings.Builder
	for _, table := range Tables() {
		if len(lines[table.ID]) > 0 {
			fmt.Fprintf(&b, "\n%d %s: %s\n  %s\n", table.ID, table.Name, table.Purpose, strings.Join(lines[table.ID], "\n  "))
		}
	}
	var groups []openflow.Group
	for _, r := range rulesOf(d, c) {
		groups = append(groups, r.Groups...)
	}
	slices.SortFunc(groups, func(a, b openflow.Group) int { return cmp.Compare(a.ID, b.ID) })
	for _, g := range groups {
		fmt.Fprintf(&b, "\n%s\n", strings.ReplaceAll(g.String(), ",bucket=", "\n    bucket="))
	}
	for _, p := range c.Problems() {
		fmt.Fprintf(&b, "\nproblem: %s\n", p.Error())
	}
	return b.String()
}
