// SPDX-License-Identifier: Apache-2.0

package client

import (
	"maps"

	"coelan.io/coelan/internal/policystream/wire"
)

// effective returns what of the items is in effect, when some are of a newer release and cannot be
// understood. A Subject that cannot be understood is closed, and so is one with a Rule that cannot.
// A Peer that cannot may have any groups: it closes Subjects with a Rule that names groups.
func effective(items map[wire.ID]entry) map[wire.ID]wire.Decoded {
	all := make(map[wire.ID]wire.Decoded, len(items))
	peer := ""
	for id, e := range items {
		d, err := wire.Decode(e.data)
		if err != nil {
			continue // not reached: it was decoded when it came
		}
		if id.Kind == wire.Key_PEER && d.Unknown != "" && (peer == "" || id.Key < peer) {
			peer = id.Key
		}
		all[id] = d
	}
	closed := map[wire.ID]string{} // Rules, with the reason
	for id, d := range all {
		switch {
		case id.Kind != wire.Key_RULE:
		case d.Unknown != "":
			closed[id] = cannot(id, d.Unknown)
		case peer != "" && len(d.Rule.Groups) > 0:
			closed[id] = cannot(wire.PeerID(peer), all[wire.PeerID(peer)].Unknown)
		}
	}
	for id, d := range all {
		switch {
		case id.Kind != wire.Key_SUBJECT:
		case d.Unknown != "":
			d.Subject.Key, d.Subject.Closed = id.Key, cannot(id, d.Unknown)
		default:
			for _, rule := range d.Subject.Rules {
				if why := closed[wire.RuleID(rule)]; why != "" && d.Subject.Closed == "" {
					d.Subject.Closed = why
				}
			}
		}
		if d.Subject.Closed != "" {
			d.Subject.Rules = nil
		}
		all[id] = d
	}
	maps.DeleteFunc(all, func(id wire.ID, d wire.Decoded) bool {
		return closed[id] != "" || id.Kind == wire.Key_PEER && d.Unknown != ""
	})
	return all
}

func cannot(id wire.ID, why string) string {
	return "the controller is of a newer release, and this agent does not understand " + id.String() + ": " + why +
		"; upgrade the agent"
}

// changeOf leads from what was in effect to what is. Digests tell items that have changed, and a
// reason to close Subjects that have not.
func changeOf(before, after map[wire.ID]wire.Decoded, changed func(wire.ID) bool) Change {
	var c Change
	for id := range before {
		if _, stays := after[id]; !stays {
			c.remove(id)
		}
	}
	for id, d := range after {
		if was, ok := before[id]; !ok || changed(id) || was.Subject.Closed != d.Subject.Closed {
			c.add(d)
		}
	}
	return c
}
