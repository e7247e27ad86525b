// SPDX-License-Identifier: Apache-2.0

// Package configuration runs an agent with the settings of the NodeNetworkConfig that holds for
// its node, in place of the ConfigMap's, and keeps them on disk for a start without a controller.
//
// An agent starts with its settings, so another configuration is a new agent in the same process:
// ports and flows stay meanwhile. What the node cannot have is refused before that. A new
// configuration is on trial until the agent has come to all of it and has reached a controller with
// it; else the one before returns. So no configuration cuts a node off for longer than a trial.
package configuration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/broadcast"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/nodeconfig"
	"coelan.io/coelan/internal/policystream/wire"
	"coelan.io/coelan/internal/trigger"
)

// trialTimeout is how long an agent may take to come to all of a new configuration.
const trialTimeout = time.Minute

// Agent is one that works by one configuration.
type Agent interface {
	// Run works until ctx ends.
	Run(ctx context.Context) error
	// Admits says why this node cannot have a configuration.
	Admits(ctx context.Context, c config.Config) error
	// Settled returns when the agent can attach pods and the node is connected to these physical
	// networks, or says when ctx ends what is missing.
	Settled(ctx context.Context, physical []string) error
}

// Options are what a Manager is made with. All are needed.
type Options struct {
	Log *slog.Logger
	// Base is the ConfigMap's configuration.
	Base config.Config
	// File keeps what holds.
	File string
	// Make makes an agent.
	Make func(config.Config) (Agent, error)
}

// Manager decides which configuration its agent has. Its methods are safe for concurrent use.
type Manager struct {
	Options
	wake    trigger.Trigger // something else is wanted
	changed broadcast.Broadcast

	mu    sync.Mutex
	state state
	// config is what the present agent is made with, and before what the one before had.
	config, before config.Config
	// wanted is what a controller has said last; nil: none has since the start. heard is closed
	// when one has said something to the present agent.
	wanted *setting
	heard  chan struct{}
	// refused is what is wanted and does not hold, and failed says that it was tried.
	refused *refusal
	failed  bool
	// problem is why no controller says what holds; denied, that one does not accept the node's
	// address.
	problem   string
	denied    bool
	switching bool
}

// refusal is a setting that the node does not apply.
type refusal struct {
	setting
	err error
}

// New reads what held last. A file that cannot be read is an error in the log only: the ConfigMap
// holds then, until a controller is reached.
func New(o Options) *Manager {
	m := &Manager{Options: o, wake: trigger.New(), config: o.Base, heard: make(chan struct{})}
	s, err := load(o.File)
	if err != nil {
		o.Log.Error("cannot read the node's configuration on disk: the ConfigMap's holds until a controller is reached",
			"err", err)
		return m
	}
	if m.state = s; s.Trial != nil {
		// The one before holds: what was tried may be why the agent ended.
		m.refuse(*s.Trial, errors.New("the agent ended while it tried this configuration"), true)
		m.state.Trial = nil
		m.save()
	}
	if m.state.Applied == nil {
		return m
	}
	c, err := m.merged(*m.state.Applied)
	if err != nil {
		m.refuse(*m.state.Applied, fmt.Errorf("with the present ConfigMap: %w", err), false)
		m.state.Applied = nil
		m.save()
		return m
	}
	m.config = c
	return m
}

// merged is the ConfigMap's configuration with a setting.
func (m *Manager) merged(s setting) (config.Config, error) {
	if s.Name == "" {
		return m.Base, nil
	}
	o, err := config.ParseOverrides(s.Settings)
	if err != nil {
		return config.Config{}, err
	}
	return m.Base.With(o)
}

// Received takes what a controller says holds. It does not block.
func (m *Manager) Received(a *wire.NodeConfiguration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.heard:
	default:
		close(m.heard)
	}
	m.problem, m.denied = "", false
	m.wanted = &setting{Name: a.GetName(), UID: a.GetUid(), Generation: a.GetGeneration(), Settings: a.GetSettings()}
	m.changed.Send()
	m.wake.Fire()
}

// Failed takes why a controller does not say what holds. It does not block.
func (m *Manager) Failed(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	problem, denied := err.Error(), status.Code(err) == codes.PermissionDenied
	var answer interface{ GRPCStatus() *status.Status }
	if errors.As(err, &answer) { // without the words of gRPC around it
		problem = answer.GRPCStatus().Message()
	}
	if problem == m.problem {
		return
	}
	m.problem, m.denied = problem, denied
	level := slog.LevelDebug
	if m.matters() {
		level = slog.LevelWarn
	}
	m.Log.Log(context.Background(), level,
		"no controller says which configuration holds for the node: the last one stays in effect, retrying",
		"err", problem)
	m.changed.Send()
}

// matters says that it is a problem if no controller says what holds: in a cluster that has no
// NodeNetworkConfigs for this node it is none. m.mu is held.
func (m *Manager) matters() bool { return m.denied || m.state.Applied != nil || m.refused != nil }

// Run has agents work until ctx ends, or until one fails by a configuration that is not on trial.
func (m *Manager) Run(ctx context.Context) error {
	for {
		err := m.runOne(ctx)
		if ctx.Err() != nil {
			m.abandon()
			return err
		}
		if !m.next(err) {
			return err
		}
	}
}

func (m *Manager) runOne(ctx context.Context) error {
	m.mu.Lock()
	c := m.config
	m.heard, m.switching = make(chan struct{}), false
	m.mu.Unlock()
	a, err := m.Make(c)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		m.watch(ctx, a)
		end()
	}()
	err = a.Run(ctx)
	end()
	<-watching
	return err
}

// abandon leaves a trial to the next start.
func (m *Manager) abandon() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state.Trial != nil {
		m.state.Trial = nil
		m.save()
	}
}

// next says whether an agent that has ended is followed by another one.
func (m *Manager) next(err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.switching {
		return true
	}
	if m.state.Trial == nil {
		return false
	}
	if err == nil {
		err = errors.New("the agent ended")
	}
	m.revert(err)
	return true
}

// watch returns when the agent has to end: for another configuration, or with ctx.
func (m *Manager) watch(ctx context.Context, a Agent) {
	if !m.try(ctx, a) {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		}
		if m.consider(ctx, a) {
			return
		}
	}
}

// try waits until the agent has come to its configuration. It is false if the agent has to end,
// because the configuration was on trial and the one before returns.
func (m *Manager) try(ctx context.Context, a Agent) bool {
	bounded, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	m.mu.Lock()
	trial, heard, physical := m.state.Trial, m.heard, otherNetworks(m.before, m.config)
	m.mu.Unlock()
	if trial == nil {
		// What is wanted has to wait: an agent that has just started cannot judge it.
		_ = a.Settled(bounded, nil)
		return ctx.Err() == nil
	}
	err := a.Settled(bounded, physical)
	if err == nil {
		select {
		case <-heard:
		case <-bounded.Done():
			err = errors.New("no controller can be reached with it")
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		m.revert(err)
		m.switching = true
		return false
	}
	m.apply(*trial)
	return true
}

// otherNetworks are the physical networks to which the node is connected in another way than it
// was.
func otherNetworks(before, now config.Config) []string {
	var list []string
	old := before.PhysicalNetworks()
	for name, bridge := range now.PhysicalNetworks() {
		if was, there := old[name]; !there || was != bridge || before.Uplinks[name] != now.Uplinks[name] {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// consider compares what is wanted with what holds. It is true if the agent has to end for it.
func (m *Manager) consider(ctx context.Context, a Agent) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wanted == nil {
		return false
	}
	wanted, holds := *m.wanted, setting{}
	if m.state.Applied != nil {
		holds = *m.state.Applied
	}
	switch {
	case wanted.same(holds):
		m.accept()
		return false
	case wanted.UID == holds.UID && wanted.Generation < holds.Generation:
		return false // from a controller that lags
	case m.refused != nil && m.refused.same(wanted) && m.failed:
		return false
	}
	c, err := m.merged(wanted)
	if err == nil && reflect.DeepEqual(c, m.config) {
		m.apply(wanted)
		return false
	}
	if err == nil {
		m.mu.Unlock()
		err = a.Admits(ctx, c)
		m.mu.Lock()
		if ctx.Err() != nil {
			return false
		}
	}
	if err != nil {
		m.refuse(wanted, err, false)
		return false
	}
	m.state.Trial = &wanted
	if err := save(m.File, m.state); err != nil {
		m.state.Trial = nil
		m.refuse(wanted, fmt.Errorf("it cannot be kept for the next start: %w", err), false)
		return false
	}
	m.Log.Info("the agent starts anew with another configuration", "configuration", wanted.String())
	m.before, m.config, m.switching = m.config, c, true
	m.accept()
	return true
}

// apply has a setting hold that the agent has come to; m.mu is held.
func (m *Manager) apply(s setting) {
	s.Time = time.Now().UTC().Truncate(time.Second)
	if m.state.Applied, m.state.Trial = &s, nil; s.Name == "" {
		m.state.Applied = nil
	}
	m.save()
	m.Log.Info("the node's configuration is in effect", "configuration", s.String())
	m.accept()
}

// accept says that nothing is refused; m.mu is held.
func (m *Manager) accept() {
	m.refused, m.failed = nil, false
	m.changed.Send()
}

// refuse notes what does not hold; m.mu is held, or the Manager is not in use yet.
func (m *Manager) refuse(s setting, err error, failed bool) {
	if m.refused == nil || !m.refused.same(s) || m.refused.err.Error() != err.Error() {
		m.Log.Error("the node's new configuration is refused: the last one stays in effect",
			"configuration", s.String(), "err", err)
	}
	m.refused, m.failed = &refusal{s, err}, failed
	m.changed.Send()
}

// revert has the configuration before a trial hold; m.mu is held.
func (m *Manager) revert(err error) {
	m.refuse(*m.state.Trial, err, true)
	m.state.Trial = nil
	m.save()
	m.config = m.before
}

// save keeps what holds; m.mu is held.
func (m *Manager) save() {
	if err := save(m.File, m.state); err != nil {
		m.Log.Error("cannot keep the node's configuration for the next start", "err", err)
	}
}

// Changed is closed when the Report or the Status may be another one than at the time of the call.
func (m *Manager) Changed() <-chan struct{} { return m.changed.Changed() }

// Report is what the node's object is to say.
func (m *Manager) Report() nodeconfig.Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	var r nodeconfig.Report
	if a := m.state.Applied; a != nil {
		r.Applied = &nodeconfig.Applied{Name: a.Name, UID: a.UID, Generation: a.Generation, Time: a.Time}
	}
	if f := m.refused; f != nil {
		r.Refused = &nodeconfig.Refused{Name: f.Name, UID: f.UID, Generation: f.Generation, Message: f.err.Error()}
	}
	// That controllers are away is known without every node saying so.
	if m.denied {
		r.Problem = m.problem
	}
	return r
}

// Status is for the coelan command.
func (m *Manager) Status() agentapi.ConfigurationStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	var s agentapi.ConfigurationStatus
	if m.matters() {
		s.Problem = m.problem
	}
	if a := m.state.Applied; a != nil {
		s.Name, s.Generation, s.Since = a.Name, a.Generation, a.Time
	}
	if t := m.state.Trial; t != nil {
		s.Trial = t.String()
	}
	if f := m.refused; f != nil {
		s.Refused = f.String() + ": " + strings.ReplaceAll(f.err.Error(), "\n", "; ")
	}
	return s
}
