// SPDX-License-Identifier: Apache-2.0

package portbinding

import (
	"strings"

	"coelan.io/coelan/api/v1alpha1"
	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/sortedmap"
)

// anyPort is what an iface-id has in place of a Port's name if the machine names none.
const anyPort = "?"

// index is what a pass needs of all Ports that are not pods'. It follows them at the cost of what
// changes.
type index struct {
	seen apicache.Objects[v1alpha1.Port]
	// named are namespace/name by UID, and of users' Ports by the UUID of their port in Neutron.
	named map[string]string
	// here are those that concern this node if it has no interface for them, by namespace/name.
	here map[string]*v1alpha1.Port
	// asking are the users' Ports that ask for a MAC, by name.
	asking map[macOf]map[string]*v1alpha1.Port
}

// macOf is a MAC that users' Ports of a namespace ask for.
type macOf struct {
	namespace string
	mac       intent.MAC
}

func newIndex() *index {
	return &index{
		named: map[string]string{}, here: map[string]*v1alpha1.Port{},
		asking: map[macOf]map[string]*v1alpha1.Port{},
	}
}

// follow brings the index to all Ports, of which about picks those that concern this node.
func (x *index) follow(ports apicache.Objects[v1alpha1.Port], about func(*v1alpha1.Port) bool) {
	sortedmap.Diff(x.seen, ports, func(key string, old, now *v1alpha1.Port) {
		if old != nil {
			delete(x.here, key)
			for _, name := range othersOf(old) {
				if x.named[name] == key {
					delete(x.named, name)
				}
			}
			if mac, ok := asks(old); ok {
				delete(x.asking[mac], old.Name)
				if len(x.asking[mac]) == 0 {
					delete(x.asking, mac)
				}
			}
		}
		if now == nil || now.Spec.Pod != nil {
			return
		}
		for _, name := range othersOf(now) {
			x.named[name] = key
		}
		if about(now) {
			x.here[key] = now
		}
		if mac, ok := asks(now); ok {
			if x.asking[mac] == nil {
				x.asking[mac] = map[string]*v1alpha1.Port{}
			}
			x.asking[mac][now.Name] = now
		}
	})
	x.seen = ports
}

// othersOf are the names that a Port has for interfaces beside its key.
func othersOf(o *v1alpha1.Port) []string {
	if o.Status.Neutron == nil || o.Spec.ByAgent() {
		return []string{string(o.UID)}
	}
	return []string{string(o.UID), o.Status.Neutron.ID}
}

// asks is the MAC that a user's Port asks for, if it does.
func asks(o *v1alpha1.Port) (macOf, bool) {
	mac, err := intent.ParseMAC(o.Spec.MAC)
	return macOf{o.Namespace, mac}, err == nil && !o.Spec.ByAgent()
}

// asked is the user's Port that asks for a MAC; nil: none does. Of several on different Networks
// the one with the first name has it.
func (x *index) asked(mac macOf) (first *v1alpha1.Port) {
	for name, o := range x.asking[mac] {
		if first == nil || name < first.Name {
			first = o
		}
	}
	return first
}

// plugged are the interfaces that can be used, by the key of the Port that has their iface-id as
// its key or another name, and those that name none. One that ovs-vswitchd could not open, such as
// the tap of a machine that is gone, is none.
func (x *index) plugged(found []backend.Guest) (m map[string][]backend.Guest, unnamed []backend.Guest) {
	m = map[string][]backend.Guest{}
	for _, i := range found {
		key := i.ID
		if named, ok := x.named[key]; ok {
			key = named
		}
		switch namespace, name, ok := strings.Cut(key, "/"); {
		case !ok || namespace == "" || name == "" || i.Number < 0:
		case name == anyPort:
			unnamed = append(unnamed, i)
		default:
			m[key] = append(m[key], i)
		}
	}
	return m, unnamed
}
