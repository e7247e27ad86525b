// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"coelan.io/coelan/internal/agent/policies"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/compile"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policy/evaluate"
	"coelan.io/coelan/internal/policystream/client"
	"coelan.io/coelan/internal/unixctl"
	"coelan.io/coelan/openflow"
)

// policiesFile holds the rules, subjects and peers that a controller sent last.
const policiesFile = "policies.db"

// newPolicies makes what follows policies; nil if they are not enforced.
func (a *Agent) newPolicies(ctx context.Context) *policies.Policies {
	if !a.policed() {
		return nil
	}
	controllers := client.Fixed(nil)
	if a.opts.Controllers != nil {
		controllers = a.opts.Controllers(ctx)
	}
	return policies.New(policies.Options{
		Log: a.log, Intent: a.intent, Applied: func(ctx context.Context, revision uint64) error { return a.flows.wait(ctx, revision) },
		Connections: tracked{a}, Observe: a.metrics.policySync,
		NewClient: func(changed func(client.Change)) policies.Client {
			return client.New(client.Options{
				Node: a.opts.NodeName, Namespace: a.opts.Namespace, File: a.cfg.StateFile(policiesFile), Log: a.log,
				Controllers: controllers, Token: client.TokenFile(a.cfg.Policy.TokenFile), OnChange: changed,
			})
		},
	})
}

// loadPolicies makes intent of the policies that were known when the agent ran last.
func (a *Agent) loadPolicies(tx *intent.Tx) {
	if a.policies != nil {
		a.policies.Load(tx)
	}
}

// followPolicies does what a controller says until ctx ends.
func (a *Agent) followPolicies(ctx context.Context) error {
	if a.policies == nil {
		return nil
	}
	return a.policies.Run(ctx)
}

// tellAttached has other nodes know who the pods are that have come: kubelet tells the API of their addresses only a second or so
// later. Those on further Networks have Ports in the API at once.
func (a *Agent) tellAttached(list []attachment.Attachment) {
	if a.policies == nil {
		return
	}
	ports := a.intent.State().Ports()
	for _, at := range list {
		p, there := ports.Get(at.Key.String())
		if there && p.Network == intent.DefaultNetworkName && evaluate.Governed(p) && !at.IsPort() {
			a.policies.Attached(policy.Attachment{Namespace: p.Namespace, Name: p.Pod, Subject: p.SubjectKey(), Addresses: p.Addresses})
		}
	}
}

// policiesTimeout is how long an agent that starts waits for the policies of now, rather than have the switch follow for a moment what it
// remembers of them. The switch goes on as before meanwhile.
const policiesTimeout = 2 * time.Second

// awaitPolicies waits a little for a controller.
func (a *Agent) awaitPolicies(ctx context.Context) {
	if a.policies == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, policiesTimeout)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-a.policies.Heard():
	}
}

// PolicyStatus is how policies are enforced on a node.
type PolicyStatus struct {
	// Mode is enforced or off.
	Mode string `json:"mode"`
	// Connected says that a controller tells of changes, and Controller which; Since when that is so, or not so.
	Connected  bool      `json:"connected"`
	Controller string    `json:"controller,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	// Complete says that a controller has told everything since the agent started: else it is what the agent remembers.
	Complete bool `json:"complete"`
	// Version is the newest that the controller has sent, Realised the newest that is in effect.
	Version  uint64 `json:"version"`
	Realised uint64 `json:"realised"`
	Rules    int    `json:"rules"`
	Subjects int    `json:"subjects"`
	Peers    int    `json:"peers"`
	// Error is why there is no connection, SaveError why what is known is not on disk.
	Error     string `json:"error,omitempty"`
	SaveError string `json:"saveError,omitempty"`
	// Closed are the Ports that nothing passes but replies and what their own node sends, and why.
	Closed []ClosedPort `json:"closed,omitempty"`
}

// ClosedPort is a Port whose policies are not known, or cannot be put into effect.
type ClosedPort struct {
	Port   string `json:"port"`
	Reason string `json:"reason"`
}

func (a *Agent) policyStatus(state *intent.State) PolicyStatus {
	p := PolicyStatus{Mode: string(a.cfg.Policy.Mode)}
	if a.policies == nil {
		return p
	}
	s := a.policies.Status()
	p.Connected, p.Controller, p.Since, p.Complete = s.Connected, s.Controller, s.Since, s.Complete
	p.Version, p.Realised, p.Error, p.SaveError = s.Version, s.Realised, s.LastError, s.SaveError
	p.Rules, p.Subjects, p.Peers = state.Rules().Len(), state.Subjects().Len(), state.Peers().Len()
	for port := range state.Ports().All() {
		if port.OFPort == 0 {
			continue
		}
		if closed := compile.Closed(state, port); closed != "" {
			p.Closed = append(p.Closed, ClosedPort{port.Name(), closed})
		}
	}
	return p
}

// problems are what of it people have to know.
func (p PolicyStatus) problems() []string {
	var list []string
	if p.Mode != string(config.EnforcedPolicies) {
		return nil
	}
	if !p.Connected {
		known := "what was known is enforced"
		if p.Error != "" {
			known = p.Error + "; " + known
		}
		list = append(list, "policies: no controller tells of changes: "+known)
	}
	if p.SaveError != "" {
		list = append(list, "policies: they are not on disk for the next start: "+p.SaveError)
	}
	const shown = 10
	for i, c := range p.Closed {
		if i == shown {
			list = append(list, fmt.Sprintf("policies: %d more ports are closed", len(p.Closed)-shown))
			break
		}
		list = append(list, "port "+c.Port+" is closed: "+c.Reason)
	}
	return list
}

// tracked are the connections in conntrack.
type tracked struct{ *Agent }

var _ policies.Connections = tracked{}

// List implements policies.Connections.
func (t tracked) List(ctx context.Context, zone uint16) ([]unixctl.Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	return t.vswitchd.Connections(ctx, zone)
}

// Denied implements policies.Connections.
func (t tracked) Denied(mark uint32) bool { return mark&compile.MarkDenied != 0 }

// FromHost implements policies.Connections.
func (t tracked) FromHost(mark uint32) bool { return mark&compile.MarkHost != 0 }

// Settled implements policies.Connections: by a round of the datapath's flows that began after the call, of which the end of the second
// one from now on tells.
func (t tracked) Settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	for range 2 {
		if _, err := t.vswitchd.Call(ctx, "revalidator/wait"); err != nil {
			return fmt.Errorf("the datapath's flows: %w", err)
		}
	}
	return nil
}

// Mark implements policies.Connections: by a packet of the connection for each, which ends in conntrack.
func (t tracked) Mark(ctx context.Context, denied bool, which []unixctl.Connection) error {
	if len(which) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	conn, err := t.sw.Conn(ctx)
	if err != nil {
		return err
	}
	var value uint32
	if denied {
		value = compile.MarkDenied
	}
	set := openflow.SetField(openflow.CTMark(value, compile.MarkDenied))
	messages := make([]openflow.Message, len(which))
	for i, c := range which {
		messages[i] = &openflow.PacketOut{
			InPort: openflow.PortController, Packet: policies.Datagram(c),
			Actions: []openflow.Action{openflow.CT{Commit: true, Zone: c.Zone, Exec: []openflow.Action{set}}},
		}
	}
	if err := conn.Do(ctx, messages); err != nil {
		return errors.Join(errors.New("UDP streams cannot be marked"), err)
	}
	return nil
}
