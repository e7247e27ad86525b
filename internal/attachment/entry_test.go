// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
)

// laterFile is a state file of a newer release: format, one attachment with fields that this
// release does not know, and the lines given.
func laterFile(t *testing.T, entries ...string) []byte {
	t.Helper()
	lines, _ := writtenFile(t)
	put := strings.Replace(string(lines[3][9:]), `{"put":{`, `{"put":{"lease":{"until":"2030-01-01<&>"},"hops":[1,2],`, 1)
	if !strings.Contains(put, "c1") || !strings.Contains(put, "lease") {
		t.Fatalf("the third commit is not that of c1: %s", put)
	}
	data := string(lines[0])
	for _, text := range append([]string{strings.TrimSuffix(put, "\n")}, entries...) {
		data += fmt.Sprintf("%08x %s\n", crc32.Checksum([]byte(text), castagnoli), text)
	}
	return []byte(data)
}

// rewrite has the store write its file anew, and opens it again.
func rewrite(t *testing.T, s *Store, path string) (*Store, string) {
	t.Helper()
	s.journal.unsure = true
	mustAllocate(t, s, "other")
	if _, err := s.Release(request("other").Key); err != nil {
		t.Fatal(err)
	}
	s.Close()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = open(path, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, string(data)
}

// An agent goes back to this release: it starts with what a newer one wrote, and what it does not
// know is still there when the newer one comes back.
func TestFileOfANewerRelease(t *testing.T) {
	s, path, err := openBytes(t, laterFile(t,
		`[{"skip":"keep","lease":{"of":"c1","n":1}},{"skip":"drop","hint":2}]`,
		`[{"skip":"keep","lease":{"of":"c1","n":2}}]`,
		`[{"saveObject":{"kind":"quota","name":"q","data":"e30="}}]`))
	if err != nil {
		t.Fatal(err)
	}
	before := s.List()
	if len(before) != 1 || before[0].OFPort != 17 {
		t.Fatalf("attachments: %v", before)
	}
	for round := range 2 {
		var text string
		s, text = rewrite(t, s, path)
		if diff := cmp.Diff(before, s.List(), addresses); diff != "" {
			t.Fatalf("attachments after the file was written anew (-want +got):\n%s", diff)
		}
		for _, kept := range []string{`"hops":[1,2]`, `"until":"2030-01-01`, `"quota"`} {
			if strings.Count(text, kept) != 1 {
				t.Errorf("round %d: %s is %d times in the file, want it once:\n%s", round, kept, strings.Count(text, kept), text)
			}
		}
		first, second := strings.Index(text, `{"of":"c1","n":1}`), strings.Index(text, `{"of":"c1","n":2}`)
		if first < 0 || second < first {
			t.Errorf("round %d: entries to be kept are lost or have changed their order:\n%s", round, text)
		}
		if strings.Contains(text, "hint") {
			t.Errorf("round %d: an entry to be dropped is in the file that was written anew:\n%s", round, text)
		}
	}
	// What it does not know of an attachment goes with it.
	if _, err := s.Release(before[0].Key); err != nil {
		t.Fatal(err)
	}
	mustAllocate(t, s, "c1")
	if _, text := rewrite(t, s, path); strings.Contains(text, "hops") {
		t.Errorf("a field of an attachment that is gone:\n%s", text)
	}
}

// What a newer release does not let older ones skip stops them, and the file stays as it is.
func TestFileOfANewerReleaseThatCannotBeSkipped(t *testing.T) {
	for entry, want := range map[string]string{
		`[{"fence":{"port":17}}]`:                   "line 3: a newer release of Coelan wrote an entry of kind fence",
		`[{"skip":"sometimes","fence":{"p":17}}]`:   "line 3: a newer release of Coelan wrote an entry of kind fence",
		`[{"skip":"drop","x":1},{"fence":1,"b":2}]`: "line 3: a newer release of Coelan wrote an entry of kind b, fence",
	} {
		data := laterFile(t, entry)
		_, path, err := openBytes(t, data)
		var newer *NewerError
		if !errors.As(err, &newer) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want a *NewerError with %s and %q", entry, err, path, want)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != string(data) {
			t.Errorf("%s: the file has been changed (%v)", entry, err)
		}
	}
}

// The first release refuses entries of other kinds than these.
func TestEntriesThatTheFirstReleaseReads(t *testing.T) {
	known := []string{"cursors", "delete", "forget", "forgetObject", "format", "put", "save", "saveObject", "skip"}
	if diff := cmp.Diff(known, slices.Sorted(maps.Keys(changeNames))); diff != "" {
		t.Errorf("kinds of entries (-known +now):\n%s"+
			"An agent of the first release does not start with a file that has an entry of a new kind, so no node can go back to it.\n"+
			"Record what is new as an object (Store.SaveObjects), which all releases keep, or as a field of an attachment.\n"+
			"If neither is possible, say in docs/operate/install.md that there is no way back, and add the kind here.", diff)
	}
}

func FuzzDecodeLine(f *testing.F) {
	f.Add([]byte(`[{"put":{"containerID":"a","new":1}},{"skip":"keep","x":{}},{}]`))
	f.Add([]byte(`[{"put":null,"skip":"drop"}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		line := fmt.Appendf(nil, "%08x %s", crc32.Checksum(text, castagnoli), text)
		changes, err := decodeLine(line)
		if err != nil {
			return
		}
		again, err := encodeLine(changes)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		second, err := decodeLine(again[:len(again)-1])
		if err != nil || len(second) != len(changes) {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		for i := range changes {
			if len(second[i].unknown) != len(changes[i].unknown) {
				t.Errorf("entry %d: %d unknown fields became %d: %s", i, len(changes[i].unknown), len(second[i].unknown), again)
			}
		}
	})
}

// Releases read each other's files: the fields of an attachment are in one object, under the names
// that they have always had.
func TestFieldsOnDisk(t *testing.T) {
	addr, prefix := netip.MustParseAddr("10.0.0.1"), netip.MustParsePrefix("10.0.0.3/24")
	data, err := json.Marshal(change{Put: &Attachment{
		Spec: Spec{
			MadeWith: "eth0", NetworkName: "red", Bridge: "brk8s", BlockSpace: true, Primary: true, Routes: []Route{{Destination: prefix}},
			PortName: "p.eth0", Dynamic: true, Leased: true, NAD: "a/b", DNS: &types.DNS{}, NeutronPort: "u", HostPorts: []HostPort{{}},
		},
		DefaultRoutes: []netip.Addr{addr}, NodeAddresses: []netip.Prefix{prefix}, NodeGateways: []netip.Addr{addr},
		FixedAddresses: true, FixedMAC: true, VLAN: 1,
	}})
	if err != nil {
		t.Fatal(err)
	}
	var entry struct{ Put fields }
	if err := json.Unmarshal(data, &entry); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"addresses", "blockSpace", "bridge", "containerID", "created", "defaultRoutes", "dns", "dynamic", "fixedAddresses", "fixedMAC", "gateways",
		"hostInterface", "hostPorts", "ifName", "leased", "mac", "madeWith", "mtu", "nad", "netns", "network", "networkID", "networkName",
		"neutronPort", "nodeAddresses", "nodeGateways", "ofPort", "podName", "podNamespace", "podUID", "portName", "primary", "routes", "vlan",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(entry.Put))); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(attachmentNames))); diff != "" {
		t.Errorf("fields that are known when a file is read (-want +got):\n%s", diff)
	}
}
