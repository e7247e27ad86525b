// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/intent"
)

func service(change func(*intent.Service)) intent.Service {
	endpoint := func(a string, terminating bool) intent.ServiceEndpoint {
		return intent.ServiceEndpoint{Address: netip.MustParseAddr(a), Port: 8080, Terminating: terminating}
	}
	s := intent.Service{Namespace: "shop", Name: "web", Router: intent.DefaultRouterName, Ports: []intent.ServicePort{
		{Protocol: intent.TCP, Port: 80, Endpoints: []intent.ServiceEndpoint{endpoint("10.244.2.2", false), endpoint("10.244.1.2", false),
			endpoint("10.244.1.3", true)}},
		{Protocol: intent.UDP, Port: 80, Endpoints: []intent.ServiceEndpoint{endpoint("10.244.1.3", true)}},
	}}
	if change != nil {
		change(&s)
	}
	return s
}

var options = Options{
	Provider: ProviderOVN, Subnet: "vips", Prefix: netip.MustParsePrefix("10.99.0.0/24"),
	SubnetOf: func(a netip.Addr) (string, bool) { return "pods", netip.MustParsePrefix("10.244.0.0/16").Contains(a) },
}

func TestCompile(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(*intent.Service)
		provider  string
		problem   string // empty: none
		listeners int
		algorithm string
	}{
		"usual":          {listeners: 2, algorithm: "SOURCE_IP_PORT"},
		"amphora":        {provider: "amphora", listeners: 2, algorithm: "ROUND_ROBIN"},
		"affinity":       {change: func(s *intent.Service) { s.AffinitySeconds = 60 }, problem: "AffinityByProvider", listeners: 2, algorithm: "SOURCE_IP_PORT"},
		"private":        {change: func(s *intent.Service) { s.Router = "red" }, problem: "RouterUnsupported"},
		"another family": {change: func(s *intent.Service) { s.Ports[1].IPv6 = true }, problem: "FamilyUnsupported", listeners: 1, algorithm: "SOURCE_IP_PORT"},
		"an endpoint outside": {change: func(s *intent.Service) { s.Ports[0].Endpoints[0].Address = netip.MustParseAddr("192.0.2.1") },
			problem: ReasonOutside, listeners: 2, algorithm: "SOURCE_IP_PORT"},
		"sources": {change: func(s *intent.Service) { s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} },
			problem: "SourceRangesUnsupported"},
		"sources of amphora": {change: func(s *intent.Service) { s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} },
			provider: "amphora", listeners: 2, algorithm: "ROUND_ROBIN"},
		"all sources": {change: func(s *intent.Service) { s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")} },
			listeners: 2, algorithm: "SOURCE_IP_PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options
			if c.provider != "" {
				o.Provider = c.provider
			}
			b := Compile(service(c.change), o)
			var reasons []string
			for _, p := range b.Problems {
				reasons = append(reasons, p.Reason)
			}
			if strings.Join(reasons, " ") != c.problem || len(b.Listeners) != c.listeners {
				t.Fatalf("problems %v, %d listeners", b.Problems, len(b.Listeners))
			}
			if c.listeners > 0 && b.Listeners[0].Algorithm != c.algorithm {
				t.Errorf("algorithm %s", b.Listeners[0].Algorithm)
			}
		})
	}
}

// Endpoints that terminate serve only where none is ready.
func TestMembers(t *testing.T) {
	b := Compile(service(nil), options)
	for i, want := range []string{"10.244.1.2 10.244.2.2", "10.244.1.3"} {
		var got []string
		for _, m := range b.Listeners[i].Members {
			got = append(got, m.Address.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("members of %s %v, want %s", b.Listeners[i].Protocol, got, want)
		}
	}
}

// The provider ovn is given the subnet of the addresses, since it fails at networks with several
// IPv6 subnets; others need the one that the endpoint is in.
func TestMemberSubnet(t *testing.T) {
	for provider, want := range map[string]string{ProviderOVN: "vips", "amphora": "pods"} {
		o := options
		o.Provider = provider
		for _, l := range Compile(service(nil), o).Listeners {
			for _, m := range l.Members {
				if m.Subnet != want {
					t.Errorf("%s: member %s is of the subnet %s, want %s", provider, m.Address, m.Subnet, want)
				}
			}
		}
	}
}

// built is what Octavia has when all calls for a Balancer have been made.
func built(b *Balancer, tag string) *Actual {
	a := &Actual{ID: "lb", Provider: b.Provider, Subnet: b.Subnet, Status: Active, Up: true, Tags: []string{tag}}
	for _, l := range b.Listeners {
		s := &step{b, a, tag, "p"}
		p := ActualPool{ID: "pool-" + l.Protocol, Name: s.name(l), Protocol: l.Protocol, Algorithm: l.Algorithm, Up: true, Tags: a.Tags}
		if l.Sticky {
			p.Persistence = &persistence{"SOURCE_IP"}
		}
		for _, m := range l.Members {
			p.MemberOf = append(p.MemberOf, ActualMember{m.Address.String(), m.Port, m.Subnet, true, 1, Active})
		}
		a.PoolOf = append(a.PoolOf, p)
		a.ListenerOf = append(a.ListenerOf, ActualListener{ID: "on-" + l.Protocol, Protocol: l.Protocol, Port: l.Port, Pool: p.ID,
			Up: true, Tags: a.Tags})
	}
	return a
}

// A change by hand is mended by the call that it needs, and what others have added stays.
func TestNext(t *testing.T) {
	tag := Tag(names.Cluster(""), "shop/web")
	want := Compile(service(nil), options)
	for name, c := range map[string]struct {
		change func(*Actual)
		call   string // empty: none
	}{
		"as wanted": {func(*Actual) {}, ""},
		"another's parts": {func(a *Actual) {
			a.ListenerOf = append(a.ListenerOf, ActualListener{ID: "x", Protocol: "TCP", Port: 443})
			a.PoolOf = append(a.PoolOf, ActualPool{ID: "y"})
		}, ""},
		"switched off":   {func(a *Actual) { a.Up = false }, "PUT loadbalancers/lb"},
		"another subnet": {func(a *Actual) { a.Subnet = "x" }, "DELETE loadbalancers/lb?cascade=true"},
		"no listener":    {func(a *Actual) { a.ListenerOf = a.ListenerOf[1:] }, "POST listeners"},
		"no pool":        {func(a *Actual) { a.PoolOf = a.PoolOf[1:] }, "POST pools"},
		"no pool named":  {func(a *Actual) { a.ListenerOf[0].Pool = "" }, "DELETE listeners/on-TCP"},
		"listener off":   {func(a *Actual) { a.ListenerOf[1].Up = false }, "PUT listeners/on-UDP"},
		"pool off":       {func(a *Actual) { a.PoolOf[1].Up = false }, "PUT pools/pool-UDP"},
		"surplus listener": {func(a *Actual) {
			l := a.ListenerOf[0]
			l.ID, l.Port = "old", 81
			a.ListenerOf = append(a.ListenerOf, l)
		}, "DELETE listeners/old"},
		"surplus pool":    {func(a *Actual) { p := a.PoolOf[0]; p.ID = "old"; a.PoolOf = append(a.PoolOf, p) }, "DELETE pools/old"},
		"no member":       {func(a *Actual) { a.PoolOf[0].MemberOf = a.PoolOf[0].MemberOf[1:] }, "PUT pools/pool-TCP/members"},
		"another member":  {func(a *Actual) { a.PoolOf[0].MemberOf[0].Port++ }, "PUT pools/pool-TCP/members"},
		"failed listener": {func(a *Actual) { a.ListenerOf[1].Status = Error }, "DELETE listeners/on-UDP"},
		"failed pool":     {func(a *Actual) { a.PoolOf[1].Status = Error }, "DELETE pools/pool-UDP"},
		"failed member":   {func(a *Actual) { a.PoolOf[0].MemberOf[0].Status = Error }, "PUT pools/pool-TCP/members"},
		"another's failed parts": {func(a *Actual) {
			a.ListenerOf = append(a.ListenerOf, ActualListener{ID: "x", Protocol: "TCP", Port: 443, Status: Error})
			a.PoolOf = append(a.PoolOf, ActualPool{ID: "y", Status: Error})
		}, ""},
		"member without weight": {func(a *Actual) { a.PoolOf[0].MemberOf[0].Weight = 0 }, "PUT pools/pool-TCP/members"},
	} {
		t.Run(name, func(t *testing.T) {
			have := built(want, tag)
			c.change(have)
			call, more := Next(want, have, tag, "p")
			if got := strings.TrimSpace(call.Method + " " + call.Path); more != (c.call != "") || more && got != c.call {
				t.Errorf("%v %s, want %q", more, got, c.call)
			}
		})
	}
	if call, _ := Next(want, nil, tag, "p"); call.Method != http.MethodPost || call.Path != "loadbalancers" {
		t.Errorf("without any: %v", call)
	}
	if call, _ := Next(nil, built(want, tag), tag, "p"); call.Method != http.MethodDelete {
		t.Errorf("not wanted: %v", call)
	}
}

// A Service with affinity asks for pools that have a client's connections go to one member, and
// what is changed of that by hand is put back.
func TestPersistence(t *testing.T) {
	const source, cookie = "SOURCE_IP", "HTTP_COOKIE"
	for name, c := range map[string]struct {
		sticky bool
		hand   func(*Actual)
		call   string // empty: none
		want   string // the persistence that it asks for; empty: none
	}{
		"made":            {true, func(a *Actual) { a.PoolOf = a.PoolOf[1:] }, "POST pools", source},
		"as wanted":       {true, func(*Actual) {}, "", ""},
		"taken away":      {true, func(a *Actual) { a.PoolOf[0].Persistence = nil }, "PUT pools/pool-TCP", source},
		"another":         {true, func(a *Actual) { a.PoolOf[1].Persistence = &persistence{cookie} }, "PUT pools/pool-UDP", source},
		"made without":    {false, func(a *Actual) { a.PoolOf = a.PoolOf[1:] }, "POST pools", ""},
		"added":           {false, func(a *Actual) { a.PoolOf[0].Persistence = &persistence{source} }, "PUT pools/pool-TCP", ""},
		"another's added": {false, func(a *Actual) { a.PoolOf[0].Persistence = &persistence{cookie} }, "PUT pools/pool-TCP", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, tag := options, Tag(names.Cluster(""), "shop/web")
			o.Provider = "amphora"
			want := Compile(service(func(s *intent.Service) {
				if c.sticky {
					s.AffinitySeconds = 60
				}
			}), o)
			if len(want.Problems) > 0 {
				t.Errorf("problems %v", want.Problems)
			}
			have := built(want, tag)
			c.hand(have)
			call, more := Next(want, have, tag, "p")
			if got := strings.TrimSpace(call.Method + " " + call.Path); more != (c.call != "") || more && got != c.call {
				t.Fatalf("%v %s, want %q", more, got, c.call)
			}
			body, _ := json.Marshal(call.Body)
			var asked map[string]struct {
				Persistence *persistence `json:"session_persistence"`
			}
			if err := json.Unmarshal(body, &asked); more && err != nil {
				t.Fatal(err)
			}
			got := ""
			if p := asked["pool"].Persistence; p != nil {
				got = p.Type
			}
			if got != c.want {
				t.Errorf("%s %s asks for %q, want %q: %s", call.Method, call.Path, got, c.want, body)
			}
		})
	}
}

func TestTags(t *testing.T) {
	east := names.Cluster("east")
	if s, ours := ServiceOf(east, []string{"x", Tag(east, "shop/web")}); !ours || s != "shop/web" {
		t.Errorf("%s, %v", s, ours)
	}
	if _, ours := ServiceOf(east, []string{Tag("west", "shop/web")}); ours {
		t.Error("the tag of another cluster is taken for its own")
	}
}
