// SPDX-License-Identifier: Apache-2.0

package octaviafake

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"coelan.io/coelan/internal/backend/neutron/neutronfake"
)

// given are the attributes in a body.
func given(kind string, body object) (object, *refused) {
	attributes, ok := body[collections[kind].singular].(object)
	if !ok || len(body) != 1 {
		return nil, invalid("Unknown attribute for argument: the body has to be of %s alone", collections[kind].singular)
	}
	return attributes, nil
}

// fresh is a new resource with attributes.
func (o *Octavia) fresh(kind string, attributes object) (*item, *refused) {
	c := collections[kind]
	i := &item{object: maps.Clone(c.attributes), kind: kind}
	for name, value := range attributes {
		if _, known := c.attributes[name]; !known {
			return nil, invalid("Unknown attribute for argument %s: %s", c.singular, name)
		}
		i.object[name] = value
	}
	for _, name := range c.needed {
		if i.object[name] == nil {
			return nil, invalid("Invalid input for field/attribute %s. Value: 'None'. Mandatory field missing.", name)
		}
	}
	o.numbers++
	i.object["id"] = fmt.Sprintf("00000000-0000-4000-8000-%012d", o.numbers)
	i.set(pendingCreate)
	return i, nil
}

// create makes a resource.
func (o *Octavia) create(kind, pool string, body object) (int, any, *refused) {
	attributes, err := given(kind, body)
	if err != nil {
		return 0, nil, err
	}
	i, err := o.fresh(kind, attributes)
	if err == nil {
		err = o.place(i, pool)
	}
	if err == nil {
		err = o.exceeds(kind, 1)
	}
	if err == nil && kind == "loadbalancers" {
		err = o.vip(i)
	}
	if err == nil && kind != "loadbalancers" {
		if err = o.mutable(i); err == nil {
			err = collections[kind].check(o, i)
		}
	}
	if err != nil {
		return 0, nil, err
	}
	if id := i.object["listener_id"]; kind == "pools" && id != nil {
		o.find("listeners", id).object["default_pool_id"] = i.id()
	}
	if kind != "listeners" {
		delete(i.object, "listener_id")
	}
	delete(i.object, "loadbalancer_id")
	o.items = append(o.items, i)
	o.begin(i, pendingCreate)
	return http.StatusCreated, object{collections[kind].singular: o.show(i)}, nil
}

// place finds what a new resource is of.
func (o *Octavia) place(i *item, pool string) *refused {
	switch i.kind {
	case "loadbalancers":
		i.balancer = i.id()
		return nil
	case "members", "healthmonitors":
		if i.kind == "healthmonitors" {
			pool = fmt.Sprint(i.object["pool_id"])
		}
		p := o.find("pools", pool)
		if p == nil {
			return absent("pools", pool)
		}
		i.pool, i.balancer = p.id(), p.balancer
		delete(i.object, "pool_id")
	default:
		id := i.object["loadbalancer_id"]
		if l := o.find("listeners", i.object["listener_id"]); id == nil && l != nil {
			id = l.balancer
		}
		if id == nil {
			return invalid("Validation failure: Must provide at least one of: loadbalancer_id, listener_id")
		}
		if i.balancer = fmt.Sprint(id); o.find("loadbalancers", id) == nil {
			return absent("loadbalancers", i.balancer)
		}
	}
	i.object["project_id"] = o.find("loadbalancers", i.balancer).object["project_id"]
	return nil
}

func (o *Octavia) exceeds(kind string, more int) *refused {
	if most, bounded := o.quotas[kind]; bounded && len(o.of(kind))+more > most {
		return refuse(http.StatusForbidden, "Quota has been met for resources: %s", collections[kind].class)
	}
	return nil
}

// mutable refuses changes of what is being changed, or has failed.
func (o *Octavia) mutable(i *item) *refused {
	const text = "%s %s is immutable and cannot be updated."
	if i.kind == "members" || i.kind == "healthmonitors" {
		if p := o.find("pools", i.pool); p.status() != Active {
			return refuse(http.StatusConflict, text, "Pool", i.pool)
		}
	}
	if b := o.find("loadbalancers", i.balancer); b.status() != Active {
		return refuse(http.StatusConflict, text, "Load Balancer", i.balancer)
	}
	return nil
}

// begin has a change of a resource, and of what it is of, be under way.
func (o *Octavia) begin(i *item, to string) {
	if b := o.find("loadbalancers", i.balancer); b.status() != pendingCreate {
		b.set(pendingUpdate)
	}
	pool := i.pool
	if i.kind == "pools" {
		pool = i.id()
	}
	for _, other := range o.items {
		concerned := other.id() == pool || other.object["default_pool_id"] == pool
		if pool != "" && concerned && other.status() != pendingCreate {
			other.set(pendingUpdate)
		}
	}
	i.set(to)
	o.due[i.balancer] = time.Now().Add(o.takes)
}

// settle ends what is due.
func (o *Octavia) settle() {
	if o.held {
		return
	}
	for balancer, at := range o.due {
		if time.Now().Before(at) {
			continue
		}
		delete(o.due, balancer)
		for _, i := range slices.Clone(o.items) {
			switch s := i.status(); {
			case i.balancer != balancer || s == Active || s == Error:
			case s == pendingDelete && !o.failing[i.kind]:
				o.drop(i)
			case o.failing[i.kind]:
				i.set(Error)
			default:
				i.set(Active)
			}
		}
	}
}

// drop takes away a resource with all that is of it.
func (o *Octavia) drop(i *item) {
	o.items = slices.DeleteFunc(o.items, func(other *item) bool {
		return other == i || i.kind == "loadbalancers" && other.balancer == i.id() ||
			i.kind == "pools" && other.pool == i.id()
	})
	for _, l := range o.of("listeners") {
		if l.object["default_pool_id"] == i.id() {
			l.object["default_pool_id"] = nil
		}
	}
	if i.kind == "loadbalancers" {
		_, _, _ = o.call(http.MethodDelete, "ports/"+fmt.Sprint(i.object["vip_port_id"]), "")
	}
}

// change changes a resource.
func (o *Octavia) change(i *item, body object) (int, any, *refused) {
	changes, err := given(i.kind, body)
	if err != nil {
		return 0, nil, err
	}
	c := collections[i.kind]
	changed := *i
	changed.object = maps.Clone(i.object)
	for name, value := range changes {
		if !slices.Contains(c.mutable, name) {
			return 0, nil, invalid("Unknown attribute for argument %s: %s", c.singular, name)
		}
		changed.object[name] = value
	}
	if i.kind == "loadbalancers" {
		err = o.state(i, Active)
	} else if err = o.mutable(i); err == nil {
		err = c.check(o, &changed)
	}
	if err != nil {
		return 0, nil, err
	}
	i.object = changed.object
	o.begin(i, pendingUpdate)
	return http.StatusOK, object{c.singular: o.show(i)}, nil
}

// state refuses changes of a load balancer that is in another status.
func (o *Octavia) state(i *item, statuses ...string) *refused {
	if slices.Contains(statuses, i.status()) {
		return nil
	}
	return refuse(http.StatusConflict, "Invalid state %s of loadbalancer resource %s", i.status(), i.id())
}

// remove deletes a resource.
func (o *Octavia) remove(i *item, cascade bool) (int, any, *refused) {
	var err *refused
	if i.kind == "loadbalancers" {
		with := func(other *item) bool { return other != i && other.balancer == i.id() }
		if !cascade && slices.ContainsFunc(o.items, with) {
			return 0, nil, invalid("Validation failure: Cannot delete Load Balancer %s - it has children", i.id())
		}
		err = o.state(i, Active, Error)
	} else {
		err = o.mutable(i)
	}
	if err != nil {
		return 0, nil, err
	}
	o.begin(i, pendingDelete)
	return http.StatusNoContent, nil, nil
}

// batch has a pool have the members that are given, and no others.
func (o *Octavia) batch(pool *item, body object) (int, any, *refused) {
	some := &item{kind: "members", pool: pool.id(), balancer: pool.balancer}
	if err := o.mutable(some); err != nil {
		return 0, nil, err
	}
	var stay, changed, added []*item
	for _, m := range list(body["members"]) {
		i, err := o.fresh("members", m.(object))
		if err == nil {
			err = o.place(i, pool.id())
		}
		if err != nil {
			return 0, nil, err
		}
		there := slices.IndexFunc(o.items, func(other *item) bool {
			return other.kind == "members" && other.pool == pool.id() &&
				other.object["address"] == i.object["address"] &&
				other.object["protocol_port"] == i.object["protocol_port"]
		})
		if there < 0 {
			if err := o.checkMember(i); err != nil {
				return 0, nil, err
			}
			added = append(added, i)
			continue
		}
		stay, changed = append(stay, o.items[there]), append(changed, i)
	}
	var gone []*item
	for _, i := range o.of("members") {
		if i.pool == pool.id() && !slices.Contains(stay, i) {
			gone = append(gone, i)
		}
	}
	if err := o.exceeds("members", len(added)-len(gone)); err != nil && len(added) > len(gone) {
		return 0, nil, err
	}
	for n, i := range stay {
		for _, name := range collections["members"].mutable {
			i.object[name] = changed[n].object[name]
		}
		o.begin(i, pendingUpdate)
	}
	for _, i := range added {
		o.items = append(o.items, i)
		o.begin(i, pendingCreate)
	}
	for _, i := range gone {
		o.begin(i, pendingDelete)
	}
	return http.StatusAccepted, nil, nil
}

// call makes a call of the Neutron.
func (o *Octavia) call(method, path, body string) (int, map[string]any, error) {
	return neutronfake.Call(context.Background(), method, o.neutron.URL+"/v2.0/"+path, body)
}

// subnet is a subnet of the Neutron; nil: there is none.
func (o *Octavia) subnet(id any) object {
	_, answer, _ := o.call(http.MethodGet, fmt.Sprintf("subnets/%v", id), "")
	s, _ := answer["subnet"].(object)
	return s
}

// vip makes the port of a new load balancer.
func (o *Octavia) vip(i *item) *refused {
	provider, id := i.object["provider"], i.object["vip_subnet_id"]
	switch {
	case i.object["project_id"] == nil:
		return invalid("Validation failure: Missing project ID in request where one is required.")
	case id == nil:
		return invalid("Validation failure: VIP must contain one of: vip_port_id, vip_network_id, vip_subnet_id.")
	}
	subnet := o.subnet(id)
	switch {
	case subnet == nil:
		return invalid("Subnet %v not found.", id)
	case provider != providerOVN && provider != amphora:
		return invalid("Provider '%v' is not enabled.", provider)
	}
	fixed := fmt.Sprintf(`"subnet_id": %q`, id)
	if a := i.object["vip_address"]; a != nil {
		fixed += fmt.Sprintf(`, "ip_address": %q`, a)
	}
	code, answer, err := o.call(http.MethodPost, "ports", fmt.Sprintf(`{"port": {"name": "ovn-lb-vip-%s", "network_id": %q, "project_id": %q,
		"admin_state_up": true, "fixed_ips": [{%s}]}}`, i.id(), subnet["network_id"], i.object["project_id"], fixed))
	if err != nil || code != http.StatusCreated {
		failure, _ := answer["NeutronError"].(object)
		return refuse(http.StatusInternalServerError, "Provider '%v' reports error: %v", provider, failure["message"])
	}
	port := answer["port"].(object)
	i.object["vip_port_id"], i.object["vip_network_id"] = port["id"], subnet["network_id"]
	i.object["vip_address"] = list(port["fixed_ips"])[0].(object)["ip_address"]
	return nil
}
