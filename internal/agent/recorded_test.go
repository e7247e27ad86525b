// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"coelan.io/coelan/internal/agent/installation"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

var record = flag.Bool("record", false, "write what this release makes of recorded state")

// Each folder of testdata/recorded is what a release left on a node, in a sandbox with two
// tenants and policies: the files of its state directory, what conntrack knew then, and the
// intent that the release itself made of the files. A folder is never changed; each release
// adds its own (docs/operate/install.md).
func recorded(t *testing.T) (dirs []string) {
	t.Helper()
	dirs, err := filepath.Glob("testdata/recorded/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no recorded state: %v", err)
	}
	return dirs
}

// stateFiles are those of the state directory.
var stateFiles = []string{installation.State, installation.Policies, installation.Services, "uplink.json"}

// takeOver copies recorded files, and has an agent load them as at its start.
func takeOver(t *testing.T, dir string) *Agent {
	t.Helper()
	c := config.Default()
	c.StateDir = t.TempDir()
	for _, name := range stateFiles {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c.StateFile(name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	a, err := New(Options{Config: c, Backend: openVSwitch(), NodeName: "worker1", Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	if a.store, err = attachment.Open(c.StateFile(installation.State)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.store.Close() })
	if err := a.makeParts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.load(); err != nil {
		t.Fatal(err)
	}
	if log.Len() > 0 {
		t.Errorf("the agent complains of the recorded files:\n%s", log.String())
	}
	return a
}

// numbersOf are the OpenFlow ports that attachments and physical networks have.
func numbersOf(a *Agent) *pipeline.Numbers {
	ports := map[string]uint32{}
	for _, at := range a.store.List() {
		ports[at.Key.String()] = at.OFPort
	}
	return pipeline.NewNumbers(ports, a.backend.Uplinks())
}

// TestRecordedState has this release make of recorded files what the release made that wrote
// them, and write nothing: pods keep their addresses, MACs and ports, and policies are
// enforced from the start.
func TestRecordedState(t *testing.T) {
	for _, dir := range recorded(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			a := takeOver(t, dir)
			now, err := json.MarshalIndent(objectsOf(a.intent.State(), numbersOf(a)), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join(dir, "intent.json")
			if *record {
				if err := os.WriteFile(golden, append(now, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range missing("", parseJSON(t, want), parseJSON(t, now)) {
				t.Errorf("%s. If a field has another name or form now, and means the same, write it so into %s", d, golden)
			}
			for _, name := range []string{installation.State, installation.Policies, installation.Services} {
				before, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				if after, err := os.ReadFile(a.Config.StateFile(name)); err != nil || !bytes.Equal(before, after) {
					t.Errorf("%s is written by an agent that starts (%v): an agent of the older release has to read it if the node goes back", name, err)
				}
			}
			s := a.intent.State()
			for id, why := range pipeline.Closed(s, "worker1") {
				t.Errorf("port %s is closed: %s", id, why)
			}
			if len(slices.Collect(s.PortsAt("worker1"))) == 0 {
				t.Error("no Ports of the node: nothing could be closed")
			}
		})
	}
}

// objectsOf are all objects of a State but what the node's kernel tells, in order.
func objectsOf(s *intent.State, n *pipeline.Numbers) map[string]any {
	return map[string]any{
		"routers": byKey(s.Routers().All()), "networks": byKey(s.Networks().All()), "nodes": byKey(s.Nodes().All()),
		"ports": byKey(numbered(s, n)), "blocks": byKey(s.Blocks().All()), "services": byKey(s.NodeServices().All()),
		"serviceRanges": byKey(s.ServiceRanges().All()), "rules": byKey(s.Rules().All()),
		"subjects": byKey(s.Subjects().All()), "peers": byKey(s.Peers().All()),
	}
}

// numbered are the Ports of a State with their OpenFlow ports.
func numbered(s *intent.State, n *pipeline.Numbers) iter.Seq[any] {
	return func(yield func(any) bool) {
		for p := range s.Ports().All() {
			if !yield(struct {
				intent.Port
				OFPort uint32
			}{p, n.Port(p.ID)}) {
				return
			}
		}
	}
}

// byKey has the order of tables not matter.
func byKey[T any](all iter.Seq[T]) []T {
	list := slices.Collect(all)
	slices.SortFunc(list, func(a, b T) int {
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		return bytes.Compare(x, y)
	})
	return list
}

func parseJSON(t *testing.T, data []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// missing lists what of a recorded value is not the same now. New fields of objects are none of it.
func missing(at string, was, is any) (list []string) {
	switch was := was.(type) {
	case map[string]any:
		now, _ := is.(map[string]any)
		for name, value := range was {
			list = append(list, missing(at+"."+name, value, now[name])...)
		}
		slices.Sort(list)
		return list
	case []any:
		now, _ := is.([]any)
		if len(now) != len(was) {
			return []string{fmt.Sprintf("%s: %d elements became %d", at, len(was), len(now))}
		}
		for i := range was {
			list = append(list, missing(fmt.Sprintf("%s[%d]", at, i), was[i], now[i])...)
		}
		return list
	}
	if was != is {
		return []string{fmt.Sprintf("%s: %v became %v", at, was, is)}
	}
	return nil
}

var tracedConnection = regexp.MustCompile(`^\w+,orig=\(src=([^,]+),.*,zone=(\d+),mark=(\d+)`)

// TestRecordedConnections reads marks that a release left in conntrack by their meanings of today.
// They outlive the agent, and today's flows judge by them.
func TestRecordedConnections(t *testing.T) {
	for _, dir := range recorded(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			a := takeOver(t, dir)
			s := a.intent.State()
			data, err := os.ReadFile(filepath.Join(dir, "conntrack.txt"))
			if err != nil {
				t.Fatal(err)
			}
			begun, numbers := map[string]int{}, numbersOf(a)
			for line := range strings.Lines(string(data)) {
				m := tracedConnection.FindStringSubmatch(line)
				if m == nil {
					t.Fatalf("not a connection: %s", line)
				}
				src, mark := netip.MustParseAddr(m[1]), parseMark(t, m[3])
				if mark&pipeline.MarkJudged == 0 || mark&pipeline.MarkDenied != 0 {
					t.Errorf("not a connection that was judged and allowed: %s", line)
				}
				by := "another node or the outside"
				for p := range s.Ports().All() {
					if numbers.Port(p.ID) == mark>>16 {
						by = "a pod"
						if !slices.Contains(slices.Concat(p.Addresses, p.NodeAddresses), src) {
							t.Errorf("port %s began a connection from %s: %s", p.Name(), src, line)
						}
					}
				}
				if mark&pipeline.MarkHost != 0 {
					by = "the node"
					if n, _ := s.Nodes().Get("worker1"); mark>>16 != datapath.GatewayPort ||
						!slices.Contains(n.Addresses, src) && !slices.ContainsFunc(n.Subnets, func(sn intent.Subnet) bool { return sn.Gateway == src }) {
						t.Errorf("the node began a connection from %s by port %d: %s", src, mark>>16, line)
					}
				}
				begun[by]++
			}
			if len(begun) != 3 {
				t.Errorf("connections, by what began them: %v; want some of each kind", begun)
			}
		})
	}
}

func parseMark(t *testing.T, text string) uint32 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}
