// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"coelan.io/coelan/internal/intent"
)

// The indexes of a snapshot that followed changes find the same as those of one that was recreated,
// and one that was left behind finds what it did.
func TestSnapshotsFollow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawView(t), drawView(t)
		old := emptySnapshot().at(from)
		before := found(old)
		if diff := cmp.Diff(found(emptySnapshot().at(to)), found(old.at(to))); diff != "" {
			t.Fatalf("followed (-anew +followed):\n%s", diff)
		}
		if diff := cmp.Diff(before, found(old)); diff != "" {
			t.Fatalf("the snapshot before has changed (-before +now):\n%s", diff)
		}
	})
}

// found is what the indexes of a snapshot have for all that its objects and those of
// other States may have.
func found(s *snapshot) map[string][]string {
	all := map[string][]string{}
	for _, name := range append(sharedSlot(), "web", "dns", "api", "gone") {
		slot := slotText(serviceSlot(intent.NodeService{Namespace: "default", Name: name}))
		all["service "+slot] = nil
		for v := range s.servicesBySlot.By(slot) {
			all["service "+slot] = append(all["service "+slot], v.Name)
		}
	}
	for rule := range s.Rules().All() {
		for _, text := range append(matchTexts(rule), slotText(ruleSlot(rule.ID))) {
			all["rule "+text] = nil
			for r := range s.rulesBySlot.By(text) {
				all["rule "+text] = append(all["rule "+text], r.ID)
			}
			for r := range s.rulesByMatch.By(text) {
				all["rule "+text] = append(all["rule "+text], r.ID)
			}
		}
	}
	for p := range s.Peers().All() {
		class := classText(classOf(p.Groups))
		all["peer "+class] = nil
		for o := range s.peersByClass.By(class) {
			all["peer "+class] = append(all["peer "+class], o.Space+" "+o.Address.String())
		}
		if !slices.Contains(all["peer "+class], p.Space+" "+p.Address.String()) {
			all["peer "+class] = append(all["peer "+class], "lacks "+p.Address.String())
		}
	}
	maps.DeleteFunc(all, func(_ string, list []string) bool { return list == nil })
	return all
}

// Slots are spread well enough that of 10,000 Services of a cluster, only few share one with more
// than one other, and follow from the name alone.
func TestSlotsAreSpread(t *testing.T) {
	count, most := map[uint32]int{}, 0
	for i := range 10000 {
		v := intent.NodeService{Namespace: fmt.Sprintf("namespace-%d", i%100), Name: fmt.Sprintf("service-%d", i)}
		slot := serviceSlot(v)
		v.UID, v.Ports = "another", []intent.NodeServicePort{{Port: 80}}
		if slot >= 1<<serviceSlotBits || serviceSlot(v) != slot {
			t.Fatalf("slot %d of %s has more than %d bits, or depends on more than the name", slot, v.Name, serviceSlotBits)
		}
		count[slot]++
		most = max(most, count[slot])
	}
	if most > 5 || len(count) < 9600 {
		t.Errorf("10,000 Services have %d slots, and %d share one", len(count), most)
	}
}
