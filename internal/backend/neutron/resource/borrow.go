// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// deviceID is the attribute that says what a port is of: the UID of its pod.
const deviceID = "device_id"

// DeviceOwner marks ports of pods and machines as those of a computer, as Kuryr does: Neutron
// itself then leaves them alone.
const DeviceOwner = "compute:kuryr"

// borrowedKey begins keys of ports that another program has made for one pod, and keeps.
const borrowedKey = "Borrowed/"

// BorrowedPort is a port of that id, in the cluster's own project, that another program has made
// for an object. It is given back when it is not wanted any more, where others are deleted.
func BorrowedPort(object, id string) Ref {
	return Ref{Kind: Port, Key: bounded(borrowedKey+object+" "+id, maxKey-len(deviceOf)-len(uuid.Nil.String()))}
}

func borrowed(r Ref) bool { return r.Kind == Port && strings.HasPrefix(r.Key, borrowedKey) }

// Owed is what has to be known of a resource that goes back to its owner where others are deleted.
// Descriptions have it: what may write the one may write the other.
type Owed struct {
	// Device is what a borrowed port was of before it was put on a trunk: Neutron puts none there
	// that is of a device.
	Device string
	// Kept says that a floating IP goes back: see Claim. Borrowed ports all do.
	Kept bool
}

// deviceOf is what is between the key of a borrowed port and its device in a description.
const deviceOf = " of "

// Descriptions of floating IPs begin with the first of these, and of those that are Kept with the
// second in its place, which is no longer: there is room for it.
const (
	floatingKey = "FloatingIP/"
	keptKey     = "KeptFIP/"
)

// Describe is what a description says of a resource after the cluster's name.
func Describe(r Ref, o Owed) string {
	if key, is := strings.CutPrefix(r.Key, floatingKey); is && o.Kept && r.Kind == FloatingIP {
		return keptKey + key
	}
	if o.Device != "" {
		return r.Key + deviceOf + o.Device
	}
	return r.Key
}

// Described is what Describe was given of a resource of that kind.
func Described(k Kind, text string) (string, Owed) {
	if key, kept := strings.CutPrefix(text, keptKey); kept && k == FloatingIP {
		return floatingKey + key, Owed{Kept: true}
	}
	if k == Port && strings.HasPrefix(text, borrowedKey) {
		key, device, _ := strings.Cut(text, deviceOf)
		return key, Owed{Device: device}
	}
	return text, Owed{}
}

// lentToUs says whether a resource goes back where others are deleted.
func lentToUs(r Ref, a Actual) bool { return borrowed(r) || a.Kept }

// detach has a borrowed port be of no device that is to be put on a trunk. It returns what is owed
// then.
func (p *planner) detach(r Resource, a Actual, changes Attributes) Owed {
	now, _ := a.Attributes[deviceID].(string)
	if _, on := p.have.subports[a.ID]; !on && now != "" && r.Trunk != "" && borrowed(r.Ref) {
		changes[deviceID], a.Owed.Device = "", now
	}
	return a.Owed
}

// giveBack is the call that leaves a resource to its owner. A floating IP leads nowhere then. A
// port is bound to no node, and closed. It stays that of its pod, which may ask for it again, and
// on the trunk where the program has put it. What it was of it gets together with an owner that
// Neutron does not take for one of its own: people of a project can write any description.
func (p *planner) giveBack(r Ref, a Actual) Call {
	if r.Kind == FloatingIP {
		return Call{Operation: Update, Ref: r, ID: a.ID, GivesBack: true, Frees: leadsTo(r, a), Attributes: Attributes{
			"description": "", portID: nil,
		}}
	}
	c := Call{Operation: Update, Ref: r, ID: a.ID, GivesBack: true, Attributes: Attributes{
		"description": "", "name": "", "security_groups": []any{}, "allowed_address_pairs": []any{},
	}}
	if a.Device != "" {
		c.Attributes[deviceID], c.Attributes["device_owner"] = a.Device, DeviceOwner
	}
	if _, on := p.have.subports[a.ID]; !on || a.Device != "" {
		c.Attributes["binding:host_id"] = ""
	}
	return c
}

// SubportOwner is the owner that Neutron gives a port which is put on a trunk.
const SubportOwner = "trunk:subport"

// misplaced says why a port cannot be on the trunk that it is claimed for.
func (p *planner) misplaced(o offer) string {
	trunk := p.have.trunks[o.Trunk]
	at, on := p.have.subports[o.actual.ID]
	switch {
	case o.Trunk == "":
		return ""
	case trunk.Reason != "":
		return "node " + o.Trunk + " cannot have ports: " + trunk.Why
	case trunk.ID == "":
		return "the trunk of node " + o.Trunk + " is not known yet"
	case on && at.Trunk != trunk.ID, !on && o.actual.Attributes["device_owner"] == SubportOwner:
		return fmt.Sprintf("it is on another trunk (%s) than %s, that of node %s: take it off", cmp.Or(at.Trunk, "of another project"),
			trunk.ID, o.Trunk)
	}
	return ""
}
