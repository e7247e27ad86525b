// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/cni/podnet"
	"coelan.io/coelan/internal/cni/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kernel is a fake of Interfaces with the real one's rules: names are unique in each
// namespace, and a pair dies with the namespace of either end.
type kernel struct {
	mu    sync.Mutex
	pods  map[string]map[string]podnet.Interface // netns → name in it → what it is
	host  map[string]podnet.Interface            // host name → what the other end should be
	fails map[string]error                       // by method
	calls []string
	// failsFor, if set, is the only interface for which Create and Configure fail.
	failsFor string
}

// bare is an interface of which only the host's end is known.
func bare(hostInterface string) podnet.Interface {
	return podnet.Interface{Attachment: attachment.Attachment{Spec: attachment.Spec{HostInterface: hostInterface}}}
}

func newKernel(netns ...string) *kernel {
	k := &kernel{pods: map[string]map[string]podnet.Interface{}, host: map[string]podnet.Interface{}, fails: map[string]error{}}
	for _, path := range netns {
		k.pods[path] = map[string]podnet.Interface{}
	}
	return k
}

func (k *kernel) enter(method string) (func(), error) {
	k.mu.Lock()
	k.calls = append(k.calls, method)
	return k.mu.Unlock, k.fails[method]
}

func (k *kernel) Verify(netns string) error {
	leave, err := k.enter("Verify")
	defer leave()
	return errors.Join(err, k.verify(netns))
}

func (k *kernel) verify(netns string) error {
	if k.pods[netns] == nil {
		return &podnet.NetnsError{Path: netns, Problem: "it does not exist"}
	}
	return nil
}

func (k *kernel) Gone(netns string) bool {
	leave, _ := k.enter("Gone")
	defer leave()
	return k.pods[netns] == nil
}

func (k *kernel) Create(i podnet.Interface) error {
	leave, err := k.enter("Create")
	defer leave()
	if k.failsFor != "" && k.failsFor != i.IfName {
		err = nil
	}
	if err := errors.Join(err, k.verify(i.Netns)); err != nil {
		return err
	}
	k.remove(i.HostInterface)
	if _, taken := k.pods[i.Netns][i.IfName]; taken {
		return &podnet.TakenError{Name: i.IfName, Where: "network namespace " + i.Netns}
	}
	k.host[i.HostInterface] = i
	k.pods[i.Netns][i.IfName] = bare(i.HostInterface)
	return nil
}

func (k *kernel) Configure(i podnet.Interface) error {
	leave, err := k.enter("Configure")
	defer leave()
	if k.failsFor != "" && k.failsFor != i.IfName {
		err = nil
	}
	if err := errors.Join(err, k.verify(i.Netns)); err != nil {
		return err
	}
	if k.pods[i.Netns][i.IfName].HostInterface != i.HostInterface {
		return &podnet.MissingError{Name: i.IfName, Where: i.Netns}
	}
	k.pods[i.Netns][i.IfName] = i
	return nil
}

func (k *kernel) Check(i podnet.Interface) error {
	leave, err := k.enter("Check")
	defer leave()
	if err := errors.Join(err, k.verify(i.Netns)); err != nil {
		return err
	}
	if _, ok := k.host[i.HostInterface]; !ok {
		return &podnet.MissingError{Name: i.HostInterface, Where: "the host"}
	}
	have, ok := k.pods[i.Netns][i.IfName]
	if !ok {
		return &podnet.MissingError{Name: i.IfName, Where: i.Netns}
	}
	if !reflect.DeepEqual(have, i) {
		return fmt.Errorf("interface %s differs", i.IfName)
	}
	return nil
}

func (k *kernel) Remove(hostName string) error {
	leave, err := k.enter("Remove")
	defer leave()
	if err == nil {
		k.remove(hostName)
	}
	return err
}

func (k *kernel) remove(hostName string) {
	if i, ok := k.host[hostName]; ok {
		delete(k.host, hostName)
		delete(k.pods[i.Netns], i.IfName)
	}
}

func (k *kernel) Existing() (map[string]bool, error) {
	leave, err := k.enter("Existing")
	defer leave()
	names := map[string]bool{}
	for name := range k.host {
		names[name] = true
	}
	return names, err
}

// end removes a namespace as the kernel does.
func (k *kernel) end(netns string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, i := range k.pods[netns] {
		delete(k.host, i.HostInterface)
	}
	delete(k.pods, netns)
}

// bridge is a fake Dataplane.
type bridge struct {
	mu      sync.Mutex
	ports   map[string]attachment.Attachment // by host interface
	fails   map[string]error                 // by method
	block   chan struct{}                    // Attach waits for it, or for its context
	entered chan string                      // told that Attach waits
	kernel  *kernel
	// failsFor, if set, is the only interface for which Attach fails.
	failsFor string
}

func (b *bridge) Attach(ctx context.Context, a attachment.Attachment) error {
	if b.block != nil {
		b.entered <- a.ContainerID
		select {
		case <-b.block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if links, _ := b.kernel.Existing(); !links[a.HostInterface] {
		return fmt.Errorf("%s: no such device", a.HostInterface)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	// Also what fails may have been done in part.
	b.ports[a.HostInterface] = a
	if b.failsFor != "" && b.failsFor != a.IfName {
		return nil
	}
	return b.fails["Attach"]
}

func (b *bridge) Detach(ctx context.Context, a attachment.Attachment) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := errors.Join(b.fails["Detach"], ctx.Err()); err != nil {
		return err
	}
	delete(b.ports, a.HostInterface)
	return nil
}

func (b *bridge) Check(_ context.Context, a attachment.Attachment) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.ports[a.HostInterface]; !ok {
		return fmt.Errorf("port %s is missing on bridge br-int", a.HostInterface)
	}
	return b.fails["Check"]
}

func (b *bridge) Ready(context.Context) error { return b.fails["Ready"] }

type fakeNode struct {
	mu   sync.Mutex
	node Node
	err  error
}

func (n *fakeNode) Node() (Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.node, n.err
}

type events struct {
	mu   sync.Mutex
	list []string
}

func (e *events) PodWarning(namespace, name, uid, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, fmt.Sprintf("%s/%s %s %s: %s", namespace, name, uid, reason, message))
}

// foreignBridges is a fake of ForeignBridges.
type foreignBridges struct {
	mu     sync.Mutex
	ports  map[string]attachment.Attachment    // by host interface
	on     map[string]attachment.ForeignBridge // the bridge, by host interface
	fails  map[string]error                    // by method
	kernel *kernel
}

func (f *foreignBridges) ForeignDatapath(context.Context, string) (string, error) {
	return "netdev", f.fails["Datapath"]
}

func (f *foreignBridges) PlugForeign(_ context.Context, b attachment.ForeignBridge, a attachment.Attachment) error {
	if links, _ := f.kernel.Existing(); !links[a.HostInterface] {
		return fmt.Errorf("%s: no such device", a.HostInterface)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails["Plug"]; err != nil {
		return err
	}
	f.ports[a.HostInterface], f.on[a.HostInterface] = a, b
	return f.fails["Plugged"]
}

func (f *foreignBridges) UnplugForeign(ctx context.Context, a attachment.Attachment) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := errors.Join(f.fails["Unplug"], ctx.Err()); err != nil {
		return err
	}
	delete(f.ports, a.HostInterface)
	return nil
}

func (f *foreignBridges) CloseForeign(ctx context.Context, a attachment.Attachment) error {
	return f.UnplugForeign(ctx, a)
}

func (f *foreignBridges) CheckForeign(_ context.Context, b attachment.ForeignBridge, a attachment.Attachment) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.ports[a.HostInterface]; !ok || f.on[a.HostInterface] != b {
		return fmt.Errorf("port %s is missing on bridge %s", a.HostInterface, b.Name)
	}
	return nil
}

func (f *foreignBridges) ForeignUsable(context.Context, attachment.ForeignBridge) error {
	return f.fails["Usable"]
}

func (f *foreignBridges) ForeignAttached(ctx context.Context) (list []attachment.Attachment, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := errors.Join(f.fails["Attached"], ctx.Err()); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(f.ports)) {
		list = append(list, f.ports[name])
	}
	return list, nil
}

// world is a server and all that it works on.
type world struct {
	*Server
	t      *testing.T
	kernel *kernel
	bridge *bridge
	// foreign are the bridges of external controllers.
	foreign *foreignBridges
	node    *fakeNode
	events  *events
	store   *attachment.Store
}

func prefixes(cidrs ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, c := range cidrs {
		list = append(list, netip.MustParsePrefix(c))
	}
	return list
}

func newWorld(t *testing.T) *world {
	t.Helper()
	store, err := attachment.Open(filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	k := newKernel("/run/netns/a", "/run/netns/b")
	w := &world{
		t: t, kernel: k, store: store, events: &events{},
		bridge: &bridge{ports: map[string]attachment.Attachment{}, fails: map[string]error{}, kernel: k},
		node: &fakeNode{node: Node{
			PodCIDRs: prefixes("10.244.1.0/24", "fd00:10:244:1::/64"), MTU: 1450, NetworkID: 1,
		}},
	}
	w.foreign = &foreignBridges{
		ports: map[string]attachment.Attachment{}, on: map[string]attachment.ForeignBridge{}, fails: map[string]error{}, kernel: k,
	}
	w.Server = New(Options{
		Foreign: w.foreign, Store: store, Dataplane: w.bridge, Node: w.node, Interfaces: k, Planner: nodePlan{}, Bridge: "br-int", Recorder: w.events,
		Logger: slog.New(slog.DiscardHandler),
	})
	return w
}

const config = `{"cniVersion":"1.1.0","name":"coelan","type":"coelan-cni"}`

// addRequest is an ADD of pod default/NAME in container NAME and namespace /run/netns/NAME.
func addRequest(name string) wire.Request {
	return wire.Request{
		Command: "ADD", ContainerID: name, Netns: "/run/netns/" + name, IfName: "eth0", Config: []byte(config),
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod-" + name +
			";K8S_POD_INFRA_CONTAINER_ID=" + name + ";K8S_POD_UID=uid-" + name,
	}
}

func as(command string, r wire.Request) wire.Request {
	r.Command = command
	return r
}

func (w *world) must(r wire.Request) []byte {
	w.t.Helper()
	out, err := w.Handle(w.t.Context(), r)
	if err != nil {
		w.t.Fatalf("%s %s: %v", r.Command, r.ContainerID, err)
	}
	return out
}

// snapshot is everything that a call can change.
func (w *world) snapshot() []string {
	w.t.Helper()
	w.kernel.mu.Lock()
	defer w.kernel.mu.Unlock()
	w.bridge.mu.Lock()
	defer w.bridge.mu.Unlock()
	var state []string
	for _, a := range w.store.List() {
		state = append(state, fmt.Sprintf("attachment %s %s %v %d", a.Key, a.PodUID, a.Addresses, a.OFPort))
	}
	for _, name := range slices.Sorted(maps.Keys(w.kernel.host)) {
		state = append(state, "host interface "+name)
	}
	for _, path := range slices.Sorted(maps.Keys(w.kernel.pods)) {
		for _, name := range slices.Sorted(maps.Keys(w.kernel.pods[path])) {
			i := w.kernel.pods[path][name]
			state = append(state, fmt.Sprintf("pod interface %s in %s: %s %s %v %v %d %v", name, path, i.HostInterface, i.MAC, i.Addresses,
				i.AllRoutes(), i.MTU, i.TXOffload))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.bridge.ports)) {
		state = append(state, "port "+name)
	}
	for _, name := range slices.Sorted(maps.Keys(w.foreign.ports)) {
		state = append(state, fmt.Sprintf("port %s on %+v", name, w.foreign.on[name]))
	}
	return state
}
