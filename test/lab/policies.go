// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/certs"
	"coelan.io/coelan/internal/policystream/server"
	"coelan.io/coelan/internal/policystream/streamtest"
	"coelan.io/coelan/internal/policystream/wire"
)

// Policies tell the agents what is allowed, as a controller does. They answer on the outside host.
type Policies struct {
	lab        *Lab
	controller *streamtest.Controller // its Hub is served there, too
	bundle     certs.Bundle
	stop       func()
	published  int
}

const controllerNamespace = streamtest.Namespace

// controllerPort is the one that the API names.
const controllerPort = 10363

// startPolicies serves them, and says so in the API.
func (l *Lab) startPolicies() error {
	p := &Policies{lab: l, stop: func() {}}
	l.Policies = p
	authority, err := streamtest.NewAuthority()
	if err != nil {
		return err
	}
	if p.controller, err = streamtest.NewFixed(authority); err != nil {
		return err
	}
	if p.bundle, _, err = certs.Renew(certs.Bundle{}, wire.ServerName(controllerNamespace), time.Now()); err != nil {
		return err
	}
	if err := p.Resume(); err != nil {
		return err
	}
	l.API.AddNamespace(controllerNamespace, nil)
	l.API.set(configMaps, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: controllerNamespace, Name: wire.ConfigMap},
		Data:       map[string]string{wire.RootsKey: string(p.bundle.Roots)},
	})
	ready, name, port := true, wire.PortName, int32(controllerPort)
	l.API.SetEndpointSlice(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: controllerNamespace, Name: wire.Service,
			Labels: map[string]string{discoveryv1.LabelServiceName: wire.Service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses:  []string{l.Outside.Address(IPv4).String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		}},
	})
	return nil
}

// Resume serves, also again after Stop, with what was set before.
func (p *Policies) Resume() error {
	l, err := p.listen()
	if err != nil {
		return err
	}
	certificate, err := p.bundle.Server(wire.ServerName(controllerNamespace), time.Now())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(ctx, l, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil },
			server.NewService(p.controller.Hub, streamtest.Tokens{}))
	}()
	p.stop = func() { cancel(); <-ended }
	return nil
}

// Stop ends it, with all streams: no controller is left.
func (p *Policies) Stop() {
	p.stop()
	p.stop = func() {}
}

// close ends all of it.
func (p *Policies) close() {
	p.Stop()
	if p.controller != nil {
		_ = p.controller.Stop()
	}
}

// PolicyView is what a node is told.
type PolicyView = policy.View

// Publish tells each node, by name, what it has to know, and waits until that is in effect.
func (p *Policies) Publish(ctx context.Context, views map[string]PolicyView) error {
	p.published++
	// A policy without subjects that is sent to each node shows when a node has received all
	// changes before it.
	marker := intent.PolicyRef{Kind: intent.NetworkPolicy, Namespace: controllerNamespace,
		Name: fmt.Sprintf("published-%d", p.published)}
	for node, v := range views {
		v.Rules = append(slices.Clone(v.Rules), intent.Rule{
			ID: "published", Policy: marker, Number: 1, Direction: intent.Ingress, Tier: intent.NetworkPolicyTier,
			Action: intent.Allow,
		})
		v.Subjects = append(slices.Clone(v.Subjects),
			intent.Subject{Key: intent.PortSubject(controllerNamespace, "nobody"), Rules: []string{"published"}})
		p.controller.Set(node, v)
	}
	for {
		r := p.controller.Hub.ProgrammedNodes(marker)
		if r.Wanted == len(views) && r.Programmed == r.Wanted {
			return nil
		}
		select {
		case <-p.controller.Hub.ProgrammedChanged():
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("policies are in effect on %d of %d nodes: %w", r.Programmed, r.Wanted, ctx.Err())
		}
	}
}

func (p *Policies) listen() (l net.Listener, err error) {
	at := net.JoinHostPort(p.lab.Outside.Address(IPv4).String(), fmt.Sprint(controllerPort))
	err = p.lab.Outside.Do(func() (err error) { l, err = net.Listen("tcp", at); return err })
	return l, err
}

// configurePolicies has the node's agent enforce policies, if the lab has any.
func (n *Node) configurePolicies(c *config.Config) {
	c.Policy.Mode = config.PoliciesOff
	if n.lab.Policies != nil {
		c.Policy.Mode, c.Policy.TokenFile = config.EnforcedPolicies, n.tokenFile()
	}
}

func (n *Node) tokenFile() string { return filepath.Join(n.dir, "token") }

// writeToken leaves the node's token where its agent looks for it.
func (n *Node) writeToken() error {
	if n.lab.Policies == nil {
		return nil
	}
	return os.WriteFile(n.tokenFile(), []byte("node:"+n.Name), 0o600)
}
