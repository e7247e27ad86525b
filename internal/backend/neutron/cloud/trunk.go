// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"coelan.io/coelan/internal/backend/neutron/resource"
)

// Parent is a port by which a machine of OpenStack is plugged that is a node.
type Parent struct {
	Node string // its name
	Port string // its UUID
	// Addresses are the node's, of which the port has one.
	Addresses []netip.Addr
}

// vlans is how many VLANs a trunk has. They are 1 to this.
const vlans = 4094

// trunk is what is read of one.
type trunk struct {
	ID       string
	Parent   string `json:"port_id"`
	Subports []struct {
		Port string `json:"port_id"`
		VLAN int    `json:"segmentation_id"`
	} `json:"sub_ports"`
}

// parent is what is read of the parent port of a trunk.
type parent struct {
	ID      string
	Project string `json:"project_id"`
	Fixed   []struct {
		Address netip.Addr `json:"ip_address"`
	} `json:"fixed_ips"`
}

// readTrunks adds the trunks of nodes, and which ports are on them. Clusters without machines of
// OpenStack as nodes have nothing read, unless ports are on trunks yet.
func (s *session) readTrunks(ctx context.Context, have *resource.Inventory, trunked bool) error {
	wanted := s.parents()
	if len(wanted) == 0 && !trunked {
		return nil
	}
	all, err := list[trunk](s.getter(ctx), "trunks", "trunks", url.Values{"project_id": {s.project}})
	missing := gone(err)
	if err != nil && !missing {
		return err
	}
	own := map[string]string{}
	for _, t := range all {
		own[t.Parent] = t.ID
		for _, p := range t.Subports {
			have.SetSubport(p.Port, resource.Subport{Trunk: t.ID, VLAN: p.VLAN})
		}
	}
	ports, err := s.parentPorts(ctx, wanted)
	if err != nil {
		return err
	}
	for _, w := range wanted {
		t := resource.Trunk{ID: own[w.Port]}
		t.Reason, t.Why = s.unusable(w, ports[w.Port], t.ID, missing)
		have.SetTrunk(w.Node, t)
	}
	return nil
}

// rereadSubport notes whether a port is on the trunk that it is claimed for: the program that has
// made it may have put it there, or elsewhere, since all was read.
func (s *session) rereadSubport(
	ctx context.Context, have *resource.Inventory, c resource.Claim, a resource.Actual,
) error {
	t := have.Trunks()[c.Trunk]
	if t.ID == "" || a.Attributes["device_owner"] != resource.SubportOwner {
		return nil
	}
	var answer struct{ Trunk trunk }
	err := s.get(ctx, "trunks/"+t.ID, &answer)
	var refused *refusal
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	if at, _ := have.Subport(a.ID); at.Trunk == t.ID {
		have.RemoveSubport(a.ID)
	}
	for _, p := range answer.Trunk.Subports {
		if p.Port == a.ID {
			have.SetSubport(a.ID, resource.Subport{Trunk: t.ID, VLAN: p.VLAN})
		}
	}
	return nil
}

// parentPorts are those ports that there are, by id.
func (s *session) parentPorts(ctx context.Context, wanted []Parent) (map[string]parent, error) {
	ports := map[string]parent{}
	for some := range slices.Chunk(wanted, maxProjects) {
		query := url.Values{}
		for _, w := range some {
			query.Add("id", w.Port)
		}
		found, err := list[parent](s.getter(ctx), "ports", "ports", query)
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			ports[p.ID] = p
		}
	}
	return ports, nil
}

// unusable says why ports cannot be put on the trunk of a node; empty: they can.
func (s *session) unusable(w Parent, p parent, id string, missing bool) (reason, why string) {
	has := func(a netip.Addr) bool {
		return slices.ContainsFunc(p.Fixed, func(f struct {
			Address netip.Addr `json:"ip_address"`
		}) bool {
			return f.Address == a
		})
	}
	switch {
	case missing:
		return "TrunksUnsupported", "Neutron has no trunks: its administrator adds trunk to service_plugins of neutron.conf"
	case p.ID == "":
		return "TrunkPortNotFound", "Neutron has no port " + w.Port + ": name the one that the machine is plugged by"
	case p.Project != s.project:
		return "TrunkPortOfAnother", fmt.Sprintf("the port %s is of the project %s, and not of the cluster's, %s", p.ID, p.Project,
			s.project)
	case !slices.ContainsFunc(w.Addresses, has):
		return "TrunkPortElsewhere", fmt.Sprintf("the port %s has none of the node's addresses, %v: name the one that the machine "+
			"has its InternalIP by", p.ID, w.Addresses)
	case id == "":
		return "TrunkNotFound", "the port " + p.ID + " has no trunk in the cluster's project: openstack network trunk create " +
			"--parent-port " + p.ID + " NAME"
	}
	return "", ""
}

// onTrunk reports whether a call puts a port on a trunk, or takes it off one.
func onTrunk(c resource.Call) bool {
	return c.Operation == resource.Join || c.Operation == resource.Leave
}

// inOneCall makes calls of one trunk at once. What is refused for one of several is made one by
// one.
func (r *round) inOneCall(ctx context.Context, calls []resource.Call) error {
	calls = r.present(calls)
	if len(calls) == 0 {
		return nil
	}
	first := calls[0]
	action, at := "add_subports", r.free(calls)
	if first.Operation == resource.Leave {
		action = "remove_subports"
	}
	items := []any{}
	for i, c := range calls {
		item := map[string]any{"port_id": c.ID}
		if c.Operation == resource.Join {
			if i >= len(at) {
				r.giveUp(c, resource.Problem{
					Object: c.Object, Reason: "VLANsUsedUp",
					Message: fmt.Sprintf("port %s of Neutron: the trunk %s has ports in all of its %d VLANs", c.ID, c.Trunk, vlans),
				})
				continue
			}
			item["segmentation_type"], item["segmentation_id"] = "vlan", at[i]
		}
		items = append(items, item)
	}
	if len(items) == 0 {
		return nil
	}
	calls = calls[:len(items)]
	err := r.do(ctx, http.MethodPut, "trunks/"+first.Trunk+"/"+action, map[string]any{"sub_ports": items}, nil)
	err = r.countUnanswered(ctx, first, err)
	var refused *refusal
	switch {
	case err != nil && !errors.As(err, &refused):
		r.stale = true // it may have had its effect
		return err
	case err != nil && len(calls) > 1:
		for _, c := range calls {
			if err := r.inOneCall(ctx, []resource.Call{c}); err != nil {
				return err
			}
		}
		return nil
	case err != nil && !(refused.gone && first.Operation == resource.Leave):
		r.lookAgain(first.Ref) // others may be on the trunk by now, or the port be gone
		r.made++
		r.refuse(first, refused)
		return nil
	}
	r.made++
	for i, c := range calls {
		if c.Operation == resource.Leave {
			r.have.RemoveSubport(c.ID)
			continue
		}
		r.have.SetSubport(c.ID, resource.Subport{Trunk: c.Trunk, VLAN: at[i]})
		r.last[c.Trunk] = at[i]
		r.tell.of(c.Ref)
	}
	return nil
}

// present are calls of ports that are there, with their ids: of others something else is said.
func (r *round) present(calls []resource.Call) (there []resource.Call) {
	for _, c := range calls {
		a, ok := r.have.Get(c.Ref)
		if !ok && c.Operation == resource.Join {
			r.giveUp(c, resource.Problem{})
			continue
		}
		if c.Operation == resource.Join {
			c.ID = a.ID
		}
		there = append(there, c)
	}
	return there
}

// free are VLANs for calls, as far as there are any. A VLAN is used again as late as possible: the
// node may not know yet that the port which had it is gone.
func (r *round) free(calls []resource.Call) (list []int) {
	id := calls[0].Trunk
	used := r.have.VLANs(id)
	if _, known := r.last[id]; !known {
		for vlan := range used {
			r.last[id] = max(r.last[id], vlan)
		}
	}
	for i := range vlans {
		vlan := (r.last[id]+i)%vlans + 1
		if !used[vlan] && len(list) < len(calls) {
			list = append(list, vlan)
		}
	}
	return list
}
