// SPDX-License-Identifier: Apache-2.0

// Package streamtest runs controllers and agents of the distribution of policies in one
// process, over gRPC and TLS on the loopback interface. There is no Kubernetes: a token is the
// name of a node.
package streamtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/certs"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/policystream/server"
	"coelan.io/coelan/internal/policystream/wire"
)

// Namespace of the controllers.
const Namespace = "coelan-system"

// Authority signs the certificate of all controllers of a test.
type Authority struct {
	certificate *tls.Certificate
	Roots       *x509.CertPool
	PEM         []byte // of Roots
}

// NewAuthority makes one.
func NewAuthority() (*Authority, error) {
	now := time.Now()
	b, _, err := certs.Renew(certs.Bundle{}, wire.ServerName(Namespace), now)
	if err != nil {
		return nil, err
	}
	a := &Authority{PEM: b.Roots}
	if a.certificate, err = b.Server(wire.ServerName(Namespace), now); err != nil {
		return nil, err
	}
	a.Roots, err = certs.Pool(b.Roots)
	return a, err
}

// Serve answers calls at a listener until ctx ends.
func (a *Authority) Serve(ctx context.Context, l net.Listener, s wire.PoliciesServer) error {
	return server.Serve(ctx, l, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.certificate, nil }, s)
}

// Controller is one replica.
type Controller struct {
	Hub     *server.Hub
	Address string

	// Versions are what NewFixed says that views are computed from.
	Versions *Versions
	// Gate bounds its connections.
	Gate *server.Gate

	authority *Authority
	service   *server.Service
	engine    *policy.Publisher[*policy.Engine] // of NewController
	fixed     *policy.Publisher[*views]         // of NewFixed
	stop      context.CancelFunc
	ended     chan error
	refused   *atomic.Int64
}

// Refused is how many connections its Gate has closed.
func (c *Controller) Refused() int64 { return c.refused.Load() }

// NewController is one with an Engine that knows nothing, at a port of its own.
func NewController(a *Authority) (*Controller, error) {
	engine := policy.NewPublisher(policy.NewEngine())
	h := server.NewHub(engine)
	h.Ready()
	c, err := NewOf(a, h)
	if err == nil {
		c.engine = engine
	}
	return c, err
}

// NewFixed is one that hands out what Set says.
func NewFixed(a *Authority) (*Controller, error) {
	v := policy.NewPublisher(&views{now: map[string]policy.View{}, attached: map[string]bool{},
		changed: map[string]policy.Delta{}})
	h := server.NewHub(v)
	versions := newVersions()
	v.Basis, h.Source = versions.Basis, versions
	h.Ready()
	c, err := NewOf(a, h)
	if err == nil {
		c.fixed, c.Versions = v, versions
	}
	return c, err
}

// NewOf is one with that Hub, which may not be ready.
func NewOf(a *Authority, h *server.Hub) (*Controller, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &Controller{Hub: h, Address: l.Addr().String(), authority: a, service: server.NewService(h, Tokens{}),
		ended: make(chan error, 1), refused: new(atomic.Int64)}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(context.Background())
	c.Gate = server.NewGate(l, func(string) { c.refused.Add(1) })
	go func() { c.ended <- a.Serve(ctx, c.Gate, c.service) }()
	return c, nil
}

// Stop ends it, with all streams.
func (c *Controller) Stop() error {
	c.stop()
	err := <-c.ended
	c.ended <- err
	return err
}

// Start is NewFixed for a test; it stops when the test ends.
func Start(t testing.TB) *Controller {
	t.Helper()
	a, err := NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewFixed(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Update changes the Engine of NewController.
func (c *Controller) Update(change func(*policy.Engine)) { c.engine.Update(change) }

// Set replaces a node's view of NewFixed.
func (c *Controller) Set(node string, v policy.View) {
	c.fixed.Update(func(x *views) { x.set(node, v) })
}

// SetAt replaces a node's view and what it is computed from.
func (c *Controller) SetAt(node string, v policy.View, basis policy.Basis) {
	c.fixed.Update(func(x *views) {
		x.set(node, v)
		c.Versions.set(basis)
	})
}

// SetStreamAge is how long agents' streams last from now on. Call it before there are any.
func (c *Controller) SetStreamAge(d time.Duration) { c.service.SetStreamAge(d) }

// Follow has it ask these controllers, which may include itself, where policies are in effect,
// until the test ends.
func (c *Controller) Follow(t testing.TB, list ...*Controller) {
	var addresses []string
	for _, o := range list {
		addresses = append(addresses, o.Address)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		c.service.Follow(ctx, client.Fixed(c.authority.Roots, addresses...), Namespace, TokenOf(controller),
			slog.Default())
		close(ended)
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// controller is what the token of one says in the place of a node.
const controller = "controller"

// ClientOptions are those of a node's agent that knows this controller and the others given. They
// lack OnChange and File.
func (c *Controller) ClientOptions(node string, others ...*Controller) client.Options {
	addresses := []string{c.Address}
	for _, o := range others {
		addresses = append(addresses, o.Address)
	}
	return client.Options{
		Node: node, Namespace: Namespace, Controllers: client.Fixed(c.authority.Roots, addresses...),
		Token: TokenOf(node),
	}
}

// TokenOf is the token of that node's agent.
func TokenOf(node string) client.Token {
	return func() (string, error) { return tokenPrefix + node, nil }
}

const tokenPrefix = "node:"

// Tokens knows the tokens of TokenOf.
type Tokens struct{}

// Authenticate implements server.Authenticator.
func (Tokens) Authenticate(_ context.Context, token string) (server.Caller, error) {
	if token == tokenPrefix+controller {
		return server.Caller{Controller: true}, nil
	}
	node, ok := strings.CutPrefix(token, tokenPrefix)
	if !ok || node == "" {
		return server.Caller{}, status.Error(codes.Unauthenticated, "the token is unknown")
	}
	return server.Caller{Node: node}, nil
}

// views are of NewFixed.
type views struct {
	now      map[string]policy.View
	attached map[string]bool
	changed  map[string]policy.Delta
}

func (v *views) View(node string) policy.View { return v.now[node] }

func (v *views) Attach(node string) policy.View {
	v.attached[node] = true
	return v.now[node]
}

func (v *views) Detach(node string) { delete(v.attached, node) }

func (v *views) Deltas() map[string]policy.Delta {
	list := v.changed
	v.changed = map[string]policy.Delta{}
	return list
}

// NodesOf implements policy.Views.
func (v *views) NodesOf(ref intent.PolicyRef) []string {
	var nodes []string
	for node, view := range v.now {
		for _, r := range view.Rules {
			if r.Policy == ref {
				nodes = append(nodes, node)
				break
			}
		}
	}
	return nodes
}

// set computes the View of a node's agent.
func (v *views) set(node string, now policy.View) {
	old := v.now[node]
	v.now[node] = now
	if !v.attached[node] {
		return
	}
	v.changed[node] = policy.Delta{
		View:            now,
		RemovedRules:    missing(old.Rules, now.Rules, func(r intent.Rule) string { return r.ID }),
		RemovedSubjects: missing(old.Subjects, now.Subjects, func(s intent.Subject) string { return s.Key }),
		RemovedPeers: missing(old.Peers, now.Peers, func(p intent.Peer) string {
			return intent.PeerKey(p.Space, p.Address)
		}),
	}
}

// missing are the keys of those that were and are not any more.
func missing[T any](old, now []T, key func(T) string) []string {
	there := map[string]bool{}
	for _, v := range now {
		there[key(v)] = true
	}
	var list []string
	for _, v := range old {
		if !there[key(v)] {
			list = append(list, key(v))
		}
	}
	return list
}
