// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"coelan.io/coelan/internal/backend/ovs/bridge"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// manyServices are Services of one TCP port with that many endpoints each, on 100
// nodes.
func manyServices(services, endpoints int) intent.Objects {
	o := manyNetworks(0, 0)
	o.Local.ServiceMode = intent.NativeServices
	o.ServiceRanges = []intent.ServiceRange{{Prefix: netip.MustParsePrefix("10.96.0.0/12")}}
	for i := range services {
		o.NodeServices = append(o.NodeServices, serviceOfMany(i, endpoints))
	}
	return o
}

func serviceOfMany(i, endpoints int) intent.NodeService {
	p := intent.NodeServicePort{Name: "http", Protocol: intent.TCP, Port: 80, ClusterIP: address4(10, 96+i>>16, i>>8, i)}
	for e := range endpoints {
		pod := i*endpoints + e
		p.Endpoints = append(p.Endpoints, intent.Endpoint{Address: address4(10, 244-pod/25000, pod/250%100, 2+pod%250), Port: 8080})
	}
	return intent.NodeService{
		Namespace: fmt.Sprint("team-", i%100), Name: fmt.Sprint("service-", i), UID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i),
		Router: intent.DefaultRouterName, Ports: []intent.NodeServicePort{p},
	}
}

// sink is a switch that is empty and takes everything.
type sink struct{}

func (sink) Flows(context.Context) ([]openflow.FlowDesc, error) { return nil, nil }
func (sink) Groups(context.Context) ([]openflow.Group, error)   { return nil, nil }
func (sink) Meters(context.Context) ([]openflow.Meter, error)   { return nil, nil }
func (sink) Bundle(context.Context, []openflow.Message) error   { return nil }
func (sink) Do(context.Context, []openflow.Message) error       { return nil }

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What 10,000 Services of 10 endpoints take of the agent's memory.
func TestServicesMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles 100,000 endpoints")
	}
	before := heap()
	state := stateFrom(t, manyServices(10_000, 10))
	known := heap()
	c := New()
	d := c.Compile(inputOf(state))
	compiled := heap()
	b := bridge.New(bridge.Options{Connect: func(context.Context) (bridge.Switch, error) { return sink{}, nil }, Learned: Learned})
	if _, err := b.Sync(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	synced := heap()
	const mega = 1 << 20
	t.Logf("intent %d MB, desired %d MB, bridge %d MB", (known-before)/mega, (compiled-known)/mega, (synced-compiled)/mega)
	if total := (synced - before) / mega; total > 150 {
		t.Errorf("%d MB", total)
	}
	runtime.KeepAlive(c)
	runtime.KeepAlive(b)
	runtime.KeepAlive(state)
}

func BenchmarkManyServices(b *testing.B) {
	state := stateFrom(b, manyServices(10_000, 10))
	b.ReportAllocs()
	for b.Loop() {
		New().Compile(inputOf(state))
	}
}

func BenchmarkServicesSync(b *testing.B) {
	state := stateFrom(b, manyServices(10_000, 10))
	d := Desired(inputOf(state))
	b.ReportAllocs()
	for b.Loop() {
		br := bridge.New(bridge.Options{Connect: func(context.Context) (bridge.Switch, error) { return sink{}, nil }, Learned: Learned})
		if _, err := br.Sync(b.Context(), d); err != nil {
			b.Fatal(err)
		}
	}
}

// One endpoint of many comes and goes.
func BenchmarkOneEndpointChanges(b *testing.B) {
	store := storeOf(b, manyServices(10_000, 10))
	c := New()
	br := bridge.New(bridge.Options{Connect: func(context.Context) (bridge.Switch, error) { return sink{}, nil }, Learned: Learned})
	if _, err := br.Sync(b.Context(), c.Compile(inputOf(store.State()))); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		state, err := store.Update(func(tx *intent.Tx) error { tx.SetNodeService(serviceOfMany(7, 10-i%2)); return nil })
		if err != nil {
			b.Fatal(err)
		}
		if _, err := br.Sync(b.Context(), c.Compile(inputOf(state))); err != nil {
			b.Fatal(err)
		}
	}
}
