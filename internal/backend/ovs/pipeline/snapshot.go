// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/fnv"
	"strconv"

	"coelan.io/coelan/internal/intent"
)

// snapshot is a State in which objects are also found by the numbers that flows and groups have for
// them.
// It never changes.
type snapshot struct {
	*intent.State
	servicesBySlot intent.Index[intent.NodeService]
	rulesBySlot    intent.Index[intent.Rule]
	rulesByMatch   intent.Index[intent.Rule]
	peersByClass   intent.Index[intent.Peer]
}

// emptySnapshot is that of a State without objects.
func emptySnapshot() *snapshot {
	return &snapshot{
		State: intent.NewStore().State(),
		servicesBySlot: intent.NewIndex(func(v intent.NodeService) []string {
			return []string{slotText(serviceSlot(v))}
		}),
		rulesBySlot:  intent.NewIndex(func(r intent.Rule) []string { return []string{slotText(ruleSlot(r.ID))} }),
		rulesByMatch: intent.NewIndex(matchTexts),
		peersByClass: intent.NewIndex(func(p intent.Peer) []string { return []string{classText(classOf(p.Groups))} }),
	}
}

// at is the snapshot of another State. The cost follows from how they differ.
func (s *snapshot) at(state *intent.State) *snapshot {
	return &snapshot{
		State: state, servicesBySlot: s.servicesBySlot.At(state.NodeServices()),
		rulesBySlot: s.rulesBySlot.At(state.Rules()), rulesByMatch: s.rulesByMatch.At(state.Rules()),
		peersByClass: s.peersByClass.At(state.Peers()),
	}
}

// serviceSlotBits and ruleSlotBits are the lengths of slots.
const (
	serviceSlotBits = 18
	ruleSlotBits    = 28
)

// serviceSlot is a number of 18 bits made from namespace and name. Few services share
// one, so slot and place among these are a short number that other services do not change.
func serviceSlot(v intent.NodeService) uint32 {
	h := fnv.New32a()
	h.Write([]byte(serviceKey(v)))
	sum := h.Sum32()
	return (sum ^ sum>>serviceSlotBits) & (1<<serviceSlotBits - 1)
}

// ruleSlot is a number of 28 bits made from a rule's ID, not 0. Hardly any rules share one; the
// place among those that do makes a number of 32 bits that other rules do not change.
func ruleSlot(id string) uint32 {
	h := fnv.New64a()
	h.Write([]byte(id))
	sum := h.Sum64()
	return max(1, uint32(sum^sum>>ruleSlotBits)&(1<<ruleSlotBits-1))
}

func slotText(slot uint32) string { return strconv.FormatUint(uint64(slot), 36) }

// classOf is the number of all Peers with these groups, which are sorted: the first 64 bits of
// their SHA-256, never 0. Of a million sets of groups, two share a number with a probability of 1
// to 30 million.
func classOf(groups []string) uint64 {
	var b []byte
	for _, g := range groups {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(g))), g...)
	}
	sum := sha256.Sum256(b)
	return max(1, binary.BigEndian.Uint64(sum[:]))
}

func matchTexts(r intent.Rule) []string {
	var texts []string
	for _, m := range portMatches(r) {
		texts = append(texts, m.String())
	}
	return texts
}
