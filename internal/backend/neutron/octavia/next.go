// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Actual is a load balancer that is there, with what is in it. Names of members of JSON are those
// of Octavia's API.
type Actual struct {
	ID         string   `json:"id"`
	Provider   string   `json:"provider"`
	Subnet     string   `json:"vip_subnet_id"`
	Address    string   `json:"vip_address"`
	Port       string   `json:"vip_port_id"`
	Status     string   `json:"provisioning_status"`
	Up         bool     `json:"admin_state_up"`
	Tags       []string `json:"tags"`
	ListenerOf []ActualListener
	PoolOf     []ActualPool
}

// ActualListener is a listener that is there.
type ActualListener struct {
	ID       string   `json:"id"`
	Protocol string   `json:"protocol"`
	Port     uint16   `json:"protocol_port"`
	Pool     string   `json:"default_pool_id"`
	Sources  []string `json:"allowed_cidrs"`
	Up       bool     `json:"admin_state_up"`
	Status   string   `json:"provisioning_status"`
	Tags     []string `json:"tags"`
}

// ActualPool is a pool that is there.
type ActualPool struct {
	ID          string       `json:"id"`
	Name        string       `json:"name"`
	Protocol    string       `json:"protocol"`
	Algorithm   string       `json:"lb_algorithm"`
	Persistence *persistence `json:"session_persistence"`
	Up          bool         `json:"admin_state_up"`
	Status      string       `json:"provisioning_status"`
	Tags        []string     `json:"tags"`
	MemberOf    []ActualMember
}

type persistence struct {
	Type string `json:"type"`
}

// ActualMember is a member that is there.
type ActualMember struct {
	Address string `json:"address"`
	Port    uint16 `json:"protocol_port"`
	Subnet  string `json:"subnet_id"`
	Up      bool   `json:"admin_state_up"`
	Weight  int    `json:"weight"`
	Status  string `json:"provisioning_status"`
}

// The provisioning statuses that have a meaning here. In the others, such as PENDING_UPDATE,
// Octavia refuses each call.
const (
	Active = "ACTIVE"
	Error  = "ERROR"
)

// Call is one call of Octavia's API.
type Call struct {
	Method, Path string // below v2.0/lbaas/
	Body         map[string]any
}

// Next is the call that brings a load balancer nearer to what is wanted, in an order in which each
// can succeed; false: there is nothing to do. Either may be nil. Of what is there the load balancer
// has to be Active, or is only deleted.
func Next(want *Balancer, have *Actual, tag, project string) (Call, bool) {
	switch {
	case have == nil && want == nil:
		return Call{}, false
	case have == nil:
		body := map[string]any{
			"name": want.Key, "vip_subnet_id": want.Subnet, "provider": want.Provider, "project_id": project,
			"tags": []string{tag},
		}
		if want.Address.IsValid() {
			body["vip_address"] = want.Address.String()
		}
		return create("loadbalancers", body), true
	case want == nil, have.Subnet != want.Subnet, have.Provider != want.Provider:
		return Call{Method: http.MethodDelete, Path: "loadbalancers/" + have.ID + "?cascade=true"}, true
	case !have.Up:
		return update("loadbalancers/"+have.ID, map[string]any{"admin_state_up": true}), true
	}
	s := &step{want, have, tag, project}
	for _, find := range []func() (Call, bool){s.failed, s.surplusListener, s.surplusPool, s.missing} {
		if c, ok := find(); ok {
			return c, true
		}
	}
	return Call{}, false
}

func create(path string, body map[string]any) Call {
	return Call{http.MethodPost, path, map[string]any{singular(path): body}}
}

func update(path string, body map[string]any) Call {
	collection, _, _ := strings.Cut(path, "/")
	return Call{http.MethodPut, path, map[string]any{singular(collection): body}}
}

func singular(collection string) string { return strings.TrimSuffix(collection, "s") }

type step struct {
	want         *Balancer
	have         *Actual
	tag, project string
}

// name is that of a listener and of its pool.
func (s *step) name(l Listener) string {
	return fmt.Sprintf("%s:%s:%d", s.want.Key, l.Protocol, l.Port)
}

func (s *step) listener(l Listener) (int, bool) {
	i := slices.IndexFunc(s.have.ListenerOf, func(a ActualListener) bool {
		return slices.Contains(a.Tags, s.tag) && a.Protocol == l.Protocol && a.Port == l.Port
	})
	return i, i >= 0
}

func (s *step) pool(l Listener) (int, bool) {
	i := slices.IndexFunc(s.have.PoolOf, func(a ActualPool) bool {
		return slices.Contains(a.Tags, s.tag) && a.Protocol == l.Protocol && a.Name == s.name(l)
	})
	return i, i >= 0
}

// Failed names a listener, a pool or a member of the cluster's that is in Error, in which it serves
// nothing and Octavia does not change it; empty: none is. Next deletes it, so that it is made
// again.
func (a *Actual) Failed(tag string) string {
	for _, l := range a.ListenerOf {
		if l.Status == Error && slices.Contains(l.Tags, tag) {
			return "listener " + l.ID
		}
	}
	for _, p := range a.PoolOf {
		if !slices.Contains(p.Tags, tag) {
			continue
		}
		if p.Status == Error {
			return "pool " + p.ID
		}
		for _, m := range p.MemberOf {
			if m.Status == Error {
				return "member " + m.Address + " of pool " + p.ID
			}
		}
	}
	return ""
}

// failed deletes the first listener or pool that is in Error. Members go with others of their pool.
func (s *step) failed() (Call, bool) {
	kind, id, _ := strings.Cut(s.have.Failed(s.tag), " ")
	return Call{Method: http.MethodDelete, Path: kind + "s/" + id}, kind == "listener" || kind == "pool"
}

// surplusListener deletes one that is the cluster's and not wanted.
func (s *step) surplusListener() (Call, bool) {
	for i, a := range s.have.ListenerOf {
		wanted := slices.ContainsFunc(s.want.Listeners, func(l Listener) bool {
			j, ok := s.listener(l)
			return ok && i == j
		})
		if !wanted && slices.Contains(a.Tags, s.tag) {
			return Call{Method: http.MethodDelete, Path: "listeners/" + a.ID}, true
		}
	}
	return Call{}, false
}

// surplusPool deletes one that is the cluster's and not wanted.
func (s *step) surplusPool() (Call, bool) {
	for i, a := range s.have.PoolOf {
		wanted := slices.ContainsFunc(s.want.Listeners, func(l Listener) bool {
			j, ok := s.pool(l)
			return ok && i == j
		})
		if !wanted && slices.Contains(a.Tags, s.tag) {
			return Call{Method: http.MethodDelete, Path: "pools/" + a.ID}, true
		}
	}
	return Call{}, false
}

// missing makes or mends the first pool, its members or its listener that is not as wanted.
func (s *step) missing() (Call, bool) {
	for _, l := range s.want.Listeners {
		i, there := s.pool(l)
		if !there {
			body := map[string]any{
				"name": s.name(l), "protocol": l.Protocol, "loadbalancer_id": s.have.ID, "project_id": s.project,
				"tags": []string{s.tag},
			}
			spread(body, l)
			return create("pools", body), true
		}
		pool := s.have.PoolOf[i]
		if pool.Algorithm != l.Algorithm || pool.persistence() != l.persistence() || !pool.Up {
			body := map[string]any{"admin_state_up": true, "session_persistence": nil}
			spread(body, l)
			return update("pools/"+pool.ID, body), true
		}
		if list, differ := members(l, pool); differ {
			return Call{http.MethodPut, "pools/" + pool.ID + "/members", map[string]any{"members": list}}, true
		}
		if c, ok := s.serve(l, pool); ok {
			return c, true
		}
	}
	return Call{}, false
}

func spread(body map[string]any, l Listener) {
	body["lb_algorithm"] = l.Algorithm
	if p := l.persistence(); p != "" {
		body["session_persistence"] = map[string]any{"type": p}
	}
}

// persistence is the type of session persistence; empty: there is to be none.
func (l Listener) persistence() string {
	if l.Sticky {
		return "SOURCE_IP"
	}
	return ""
}

func (p ActualPool) persistence() string {
	if p.Persistence == nil {
		return ""
	}
	return p.Persistence.Type
}

// members is the list that a pool is to have, if it has another one. The subnet of a member cannot
// be changed, and one in Error stays so: both are left out first.
func members(l Listener, pool ActualPool) (list []any, differ bool) {
	list = []any{}
	differ = len(pool.MemberOf) != len(l.Members)
	for _, m := range l.Members {
		i := slices.IndexFunc(pool.MemberOf, func(a ActualMember) bool {
			return a.Address == m.Address.String() && a.Port == m.Port
		})
		differ = differ || i < 0
		if i >= 0 {
			a := pool.MemberOf[i]
			outdated := a.Subnet != m.Subnet || a.Status == Error
			differ = differ || outdated || !a.Up || a.Weight != 1
			if outdated {
				continue
			}
		}
		list = append(list, map[string]any{
			"address": m.Address.String(), "protocol_port": m.Port, "subnet_id": m.Subnet, "weight": 1,
			"admin_state_up": true,
		})
	}
	return list, differ
}

// serve makes or mends the listener of a pool.
func (s *step) serve(l Listener, pool ActualPool) (Call, bool) {
	i, there := s.listener(l)
	if !there {
		body := map[string]any{
			"name": s.name(l), "protocol": l.Protocol, "protocol_port": l.Port, "loadbalancer_id": s.have.ID,
			"default_pool_id": pool.ID, "project_id": s.project, "tags": []string{s.tag},
		}
		if len(l.Sources) > 0 {
			body["allowed_cidrs"] = l.Sources
		}
		return create("listeners", body), true
	}
	a := s.have.ListenerOf[i]
	if a.Pool != pool.ID {
		// The provider ovn leaves a listener without endpoints that gets another pool.
		return Call{Method: http.MethodDelete, Path: "listeners/" + a.ID}, true
	}
	body := map[string]any{}
	if !a.Up {
		body["admin_state_up"] = true
	}
	if !sameSources(a.Sources, l.Sources) {
		body["allowed_cidrs"] = l.Sources
	}
	return update("listeners/"+a.ID, body), len(body) > 0
}

// sameSources compares lists in any order.
func sameSources(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
