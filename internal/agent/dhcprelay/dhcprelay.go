// SPDX-License-Identifier: Apache-2.0

package dhcprelay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"coelan.io/coelan/internal/dhcp/relay"
	"coelan.io/coelan/internal/intent"
)

const (
	// answerTime is how long after a question its answers are taken.
	answerTime = 2 * time.Minute
	// reasonNotWorking is that of the Event on the Node if it cannot ask.
	reasonNotWorking = "DHCPRelayNotWorking"
)

// Options are what a Relay works with.
type Options struct {
	Log    *slog.Logger
	Intent *intent.Store
	// Listen opens a socket; nil: one of the kernel's.
	Listen func(at netip.AddrPort) (Conn, error)
	// Received takes a server's answer for a Network: a frame as the machine receives it.
	Received func(network string, frame []byte)
	// Warn tells by an Event on the Node what is wrong; false: it cannot yet.
	Warn    func(reason string, err error) bool
	Metrics prometheus.Registerer
}

// Relay is that of one node. It is safe for concurrent use.
type Relay struct {
	Options
	count   *prometheus.CounterVec // by message
	readers sync.WaitGroup

	mu      sync.Mutex
	ended   bool // by Run
	socket  Conn // nil: not open
	at      netip.AddrPort
	failure string            // to open it that there is an Event of; empty: it was opened
	askers  map[string]*asker // by option 82
	pruned  time.Time
}

// asker is an interface that has asked.
type asker struct {
	network string
	mac     net.HardwareAddr
	at      time.Time // of its newest question
	problem string    // with that, or with an answer to it; empty: none
}

// New makes a Relay. It asks from the start; Run ends it.
func New(o Options) *Relay {
	r := &Relay{Options: o, askers: map[string]*asker{}, count: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "coelan_dhcp_relay_messages_total",
		Help: "Messages between the agent as a DHCP relay and servers, by kind: question, answer, refused or failed.",
	}, []string{"message"})}
	o.Metrics.MustRegister(r.count)
	if r.Listen == nil {
		r.Listen = listen
	}
	return r
}

// Relays says whether a Network has servers that are asked by the Relay.
func (r *Relay) Relays(network string) bool {
	n, _ := r.Intent.State().Networks().Get(network)
	return n.Relay.Enabled
}

// origin is what servers of a Network are told of a Port, which is NAMESPACE/NAME.
func origin(s *intent.State, network, port string) (o relay.Origin, servers []netip.Addr, err error) {
	n, _ := s.Networks().Get(network)
	if len(n.Relay.Servers) == 0 {
		return o, nil, fmt.Errorf("network %s: spec.dhcpRelay names no server that can be asked", network)
	}
	node, _ := s.LocalNode()
	i := slices.IndexFunc(node.Addresses, netip.Addr.Is4)
	if i < 0 {
		return o, nil, errors.New("the node has no IPv4 address, to which DHCP servers could answer")
	}
	return relay.Origin{
		Relay: node.Addresses[i], Subnet: n.Relay.Subnet, Interface: network + "/" + port, Node: node.Name,
	}, n.Relay.Servers, nil
}

// Ask asks all servers of a Network what the interface of a Port asks: a frame. It fails if none of
// them can be asked.
func (r *Relay) Ask(_ context.Context, network, port string, frame []byte) error {
	o, servers, err := origin(r.Intent.State(), network, port)
	if err != nil {
		return err
	}
	question, err := relay.Question(frame)
	if err != nil {
		return err
	}
	data, err := o.Relayed(question)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err = r.ask(netip.AddrPortFrom(o.Relay, relay.ServerPort), servers, data)
	r.note(o, network, question.ClientHWAddr, err)
	if err != nil {
		r.count.WithLabelValues("failed").Inc()
		return err
	}
	r.count.WithLabelValues("question").Inc()
	return nil
}

// ask sends a question to servers, from an address.
func (r *Relay) ask(from netip.AddrPort, servers []netip.Addr, data []byte) error {
	if err := r.open(from); err != nil {
		return err
	}
	var failed []error
	for _, server := range servers {
		if _, err := r.socket.WriteToUDPAddrPort(data, netip.AddrPortFrom(server, relay.ServerPort)); err != nil {
			failed = append(failed, fmt.Errorf("server %s cannot be asked: %w", server, err))
		}
	}
	if err := errors.Join(failed...); len(failed) == len(servers) {
		return err
	} else if err != nil {
		r.Log.Debug("a DHCP server cannot be asked; others can", "err", err)
	}
	return nil
}

// note remembers an interface that asks, and forgets those of which no answer is waited for.
func (r *Relay) note(o relay.Origin, network string, mac net.HardwareAddr, problem error) {
	now := time.Now()
	a := &asker{network: network, mac: mac, at: now}
	if problem != nil {
		a.problem = problem.Error()
	}
	r.askers[string(o.Option())] = a
	if now.Sub(r.pruned) < answerTime {
		return
	}
	r.pruned = now
	for option, a := range r.askers {
		if now.Sub(a.at) > answerTime {
			delete(r.askers, option)
		}
	}
}

// received takes what has come to the socket.
func (r *Relay) received(from netip.AddrPort, data []byte) {
	network, frame, err := r.judge(from, data)
	if err != nil {
		r.count.WithLabelValues("refused").Inc()
		r.Log.Debug("a message to the DHCP relay is not taken", "from", from, "err", err)
		return
	}
	r.count.WithLabelValues("answer").Inc()
	r.Received(network, frame)
}

// judge says for which Network an answer is, and what the machine receives.
func (r *Relay) judge(from netip.AddrPort, data []byte) (network string, frame []byte, err error) {
	m, option, err := relay.Answer(data)
	if err != nil {
		return "", nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.askers[string(option)]
	if a == nil || !bytes.Equal(a.mac, m.ClientHWAddr) || time.Since(a.at) > answerTime {
		return "", nil, errors.New("nothing of this node has asked for it")
	}
	n, _ := r.Intent.State().Networks().Get(a.network)
	server := from.Addr().Unmap()
	if from.Port() != relay.ServerPort || !slices.Contains(n.Relay.Servers, server) {
		return "", nil, fmt.Errorf("it is from no server of network %s", a.network)
	}
	if err := relay.CheckSubnet(m, n.Relay.Subnet); err != nil {
		a.problem = fmt.Sprintf("server %s: %v", server, err)
		return "", nil, err
	}
	a.problem = ""
	return a.network, relay.Frame(m, server, sourceMAC), nil
}

// Servers names the servers of a Network that are asked, for messages, and what is wrong with what
// a Port has asked last.
func (r *Relay) Servers(network, port string) (which, problem string) {
	o, servers, err := origin(r.Intent.State(), network, port)
	if err != nil {
		return "DHCP server of its Network", err.Error()
	}
	var names []string
	for _, a := range servers {
		names = append(names, a.String())
	}
	which = fmt.Sprintf("DHCP server that the node asks as a relay from %s (%s)", o.Relay, strings.Join(names, ", "))
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.askers[string(o.Option())]; a != nil {
		problem = a.problem
	}
	return which, problem
}
