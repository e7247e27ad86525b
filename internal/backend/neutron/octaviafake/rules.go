// SPDX-License-Identifier: Apache-2.0

package octaviafake

import (
	"maps"
	"net/http"
	"net/netip"
	"slices"
)

// collection is what there is to know of a kind of resources.
type collection struct {
	class, singular string
	// attributes are those that a new resource may have, with their values if it does not.
	attributes object
	// needed are those that a new resource must have, and mutable those that can change.
	needed, mutable []string
	// check says what is wrong with a new resource, or a changed one.
	check func(*Octavia, *item) *refused
}

// collections are those of the API, by path.
var collections map[string]*collection

func init() { //nolint:gochecknoinits // the checks refer to the collections
	common := []string{"name", "description", "admin_state_up", "tags"}
	with := func(more object) object {
		all := object{"name": "", "description": "", "admin_state_up": true, "tags": []any{}, "project_id": nil}
		maps.Copy(all, more)
		return all
	}
	collections = map[string]*collection{
		"loadbalancers": {
			class: "LoadBalancer", singular: "loadbalancer", mutable: common, attributes: with(object{
				"vip_address": nil, "vip_subnet_id": nil, "provider": providerOVN,
			}),
		},
		"listeners": {
			class: "Listener", singular: "listener", attributes: with(object{
				"loadbalancer_id": nil, "protocol": nil, "protocol_port": nil, "default_pool_id": nil,
				"allowed_cidrs": nil, "connection_limit": -1,
			}),
			needed:  []string{"protocol", "protocol_port", "loadbalancer_id"},
			mutable: append([]string{"default_pool_id", "allowed_cidrs", "connection_limit"}, common...),
			check:   (*Octavia).checkListener,
		},
		"pools": {
			class: "Pool", singular: "pool", attributes: with(object{
				"loadbalancer_id": nil, "listener_id": nil, "protocol": nil, "lb_algorithm": nil,
				"session_persistence": nil,
			}),
			needed:  []string{"protocol", "lb_algorithm"},
			mutable: append([]string{"lb_algorithm", "session_persistence"}, common...), check: (*Octavia).checkPool,
		},
		"members": {
			class: "Member", singular: "member", attributes: object{
				"name": "", "admin_state_up": true, "tags": []any{}, "project_id": nil, "address": nil,
				"protocol_port": nil, "weight": 1, "backup": false, "subnet_id": nil,
				"monitor_address": nil, "monitor_port": nil,
			},
			needed:  []string{"address", "protocol_port"},
			mutable: []string{"name", "admin_state_up", "tags", "weight", "backup", "monitor_address", "monitor_port"},
			check:   (*Octavia).checkMember,
		},
		"healthmonitors": {
			class: "HealthMonitor", singular: "healthmonitor", attributes: object{
				"name": "", "admin_state_up": true, "tags": []any{}, "project_id": nil, "pool_id": nil, "type": nil,
				"delay": nil, "timeout": nil, "max_retries": nil, "max_retries_down": 3,
			},
			needed:  []string{"type", "delay", "timeout", "max_retries", "pool_id"},
			mutable: []string{"name", "admin_state_up", "tags", "delay", "timeout", "max_retries", "max_retries_down"},
			check:   (*Octavia).checkMonitor,
		},
	}
}

// The providers that there are.
const (
	providerOVN = "ovn"
	amphora     = "amphora"
)

var (
	protocols  = []any{"TCP", "UDP", "SCTP", "HTTP", "HTTPS"}
	algorithms = []any{"SOURCE_IP_PORT", "ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP"}
	monitors   = []any{"TCP", "UDP-CONNECT", "HTTP", "HTTPS", "PING", "TLS-HELLO", "SCTP"}
)

func oneOf(i *item, attribute string, values []any) *refused {
	if !slices.Contains(values, i.object[attribute]) {
		return invalid("Invalid input for field/attribute %s. Value: '%v'. Value should be one of: %v", attribute, i.object[attribute],
			values)
	}
	return nil
}

func inRange(i *item, attribute string, least, most float64) *refused {
	if n, ok := i.object[attribute].(float64); i.object[attribute] != 1 && (!ok || n < least || n > most) {
		return invalid("Invalid input for field/attribute %s. Value: '%v'. Value should be greater or equal to %v and lower or equal "+
			"to %v", attribute, i.object[attribute], least, most)
	}
	return nil
}

const maxPort = 65535

// cannot says that the provider of a load balancer cannot do something.
func (o *Octavia) cannot(i *item, what string) *refused {
	provider := o.find("loadbalancers", i.balancer).object["provider"]
	if provider != providerOVN {
		return nil
	}
	return refuse(http.StatusNotImplemented, "Provider 'ovn' does not support a requested option: OVN provider does not support %s", what)
}

func first(refusals ...*refused) *refused {
	for _, r := range refusals {
		if r != nil {
			return r
		}
	}
	return nil
}

func (o *Octavia) checkListener(i *item) *refused {
	if err := first(oneOf(i, "protocol", protocols), inRange(i, "protocol_port", 1, maxPort)); err != nil {
		return err
	}
	if id := i.object["default_pool_id"]; id != nil {
		p := o.find("pools", id)
		if p == nil || p.balancer != i.balancer {
			return absent("pools", id.(string))
		}
		if p.object["protocol"] != i.object["protocol"] {
			return invalid("Validation failure: The pool protocol '%v' is invalid while the listener protocol is '%v'.", p.object["protocol"],
				i.object["protocol"])
		}
	}
	for _, other := range o.of("listeners") {
		if other.id() != i.id() && other.balancer == i.balancer && other.object["protocol"] == i.object["protocol"] &&
			other.object["protocol_port"] == i.object["protocol_port"] {
			return refuse(http.StatusConflict, "Another Listener on this Load Balancer is already using protocol %v and protocol_port %v",
				i.object["protocol"], i.object["protocol_port"])
		}
	}
	vip, _ := netip.ParseAddr(o.find("loadbalancers", i.balancer).object["vip_address"].(string))
	for _, text := range list(i.object["allowed_cidrs"]) {
		cidr, err := netip.ParsePrefix(text.(string))
		if err != nil {
			return invalid("Invalid input for field/attribute allowed_cidrs. Value: '%v'. Value should be IPv4 or IPv6 CIDR format", text)
		}
		if cidr.Addr().Is6() != vip.Is6() {
			return invalid("Validation failure: CIDR %v IP version incompatible with VIP %v IP version.", text, vip)
		}
	}
	if len(list(i.object["allowed_cidrs"])) > 0 {
		return o.cannot(i, "allowed_cidrs option")
	}
	return o.checkProtocol(i)
}

func (o *Octavia) checkProtocol(i *item) *refused {
	if p := i.object["protocol"]; p == "HTTP" || p == "HTTPS" {
		return o.cannot(i, p.(string)+" protocol")
	}
	return nil
}

func (o *Octavia) checkPool(i *item) *refused {
	if err := first(oneOf(i, "protocol", protocols), oneOf(i, "lb_algorithm", algorithms)); err != nil {
		return err
	}
	if p, given := i.object["session_persistence"].(object); given {
		persistence := &item{object: p}
		if err := oneOf(persistence, "type", []any{"SOURCE_IP", "HTTP_COOKIE", "APP_COOKIE"}); err != nil {
			return err
		}
	}
	if a := i.object["lb_algorithm"]; a != "SOURCE_IP_PORT" {
		if err := o.cannot(i, a.(string)+" algorithm"); err != nil {
			return err
		}
	}
	return o.checkProtocol(i)
}

func (o *Octavia) checkMember(i *item) *refused {
	text, _ := i.object["address"].(string)
	a, err := netip.ParseAddr(text)
	if err != nil {
		return invalid("Invalid input for field/attribute address. Value: '%s'. Value should be IPv4 or IPv6 format", text)
	}
	if err := first(inRange(i, "protocol_port", 1, maxPort), inRange(i, "weight", 0, 256)); err != nil {
		return err
	}
	if id := i.object["subnet_id"]; id != nil && o.subnet(id) == nil {
		return invalid("Subnet %v not found.", id)
	}
	for _, other := range o.of("members") {
		if other.id() != i.id() && other.pool == i.pool && other.object["address"] == text &&
			other.object["protocol_port"] == i.object["protocol_port"] {
			return refuse(http.StatusConflict, "Another member on this pool is already using ip %s on protocol_port %v", text,
				i.object["protocol_port"])
		}
	}
	vip, _ := netip.ParseAddr(o.find("loadbalancers", i.balancer).object["vip_address"].(string))
	if a.Is6() != vip.Is6() {
		return o.cannot(i, "mixing IPv4 and IPv6")
	}
	return nil
}

func (o *Octavia) checkMonitor(i *item) *refused {
	if err := oneOf(i, "type", monitors); err != nil {
		return err
	}
	pool := o.find("pools", i.pool)
	if t, p := i.object["type"], pool.object["protocol"]; t == "UDP-CONNECT" && p != "UDP" {
		return invalid("Validation failure: The %v type is only supported for pools of type UDP/SCTP.", t)
	}
	for _, other := range o.of("healthmonitors") {
		if other.pool == i.pool && other.id() != i.id() {
			return refuse(http.StatusConflict, "This pool already has a health monitor")
		}
	}
	if t := i.object["type"].(string); t != "TCP" && t != "UDP-CONNECT" {
		return o.cannot(i, t+" health monitor type")
	}
	return nil
}
