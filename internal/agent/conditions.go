// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// condition is one thing that must hold before pods can be attached.
type condition string

// The conditions, in the order in which they come true at a start.
const (
	condNode   condition = "node"   // the API's Node object says what the agent must know
	condOVS    condition = "ovs"    // Open vSwitch runs and can be used
	condBridge condition = "bridge" // bridge, tunnel and gateway exist
	condFlows  condition = "flows"  // the flows on the bridge are those of the newest intent
	condHost   condition = "host"   // the host's kernel is configured
	condCNI    condition = "cni"    // the container runtime knows the network; needs all others
)

var allConditions = []condition{condNode, condOVS, condBridge, condFlows, condHost, condCNI}

// limiting are the conditions without which also running pods may be cut off.
var limiting = map[condition]bool{condOVS: true, condBridge: true, condFlows: true, condHost: true}

// errStarting is the state of a condition that nobody has looked at yet.
var errStarting = errors.New("not checked yet, the agent is starting")

// conditions says why the agent is not ready.
type conditions struct {
	log *slog.Logger

	mu      sync.Mutex
	errs    map[condition]error
	changed chan struct{}
}

func newConditions(log *slog.Logger) *conditions {
	c := &conditions{log: log, errs: map[condition]error{}, changed: make(chan struct{})}
	for _, k := range allConditions {
		c.errs[k] = errStarting
	}
	return c
}

// set records an outcome, and logs it if it is a new one.
func (c *conditions) set(k condition, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.errs[k]
	if (old == nil) == (err == nil) && (err == nil || old.Error() == err.Error()) {
		return
	}
	if err == nil {
		delete(c.errs, k)
		c.log.Info("condition met", "condition", k)
	} else {
		c.errs[k] = err
		c.log.Warn("condition not met", "condition", k, "err", err)
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// unmet returns the first condition for attaching pods that does not hold, nil if all do.
func (c *conditions) unmet() error { return c.first(func(k condition) bool { return k != condCNI }) }

// notReady is unmet for all conditions.
func (c *conditions) notReady() error { return c.first(func(condition) bool { return true }) }

func (c *conditions) first(counts func(condition) bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range allConditions {
		if err := c.errs[k]; err != nil && counts(k) {
			return &unmetError{k, err}
		}
	}
	return nil
}

// changes returns a channel that closes with the next change. Take it before looking, so that no change is missed.
func (c *conditions) changes() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// all lists the conditions with the reason why one is not met, empty if it is.
func (c *conditions) all() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := map[string]string{}
	for _, k := range allConditions {
		m[string(k)] = ""
		if err := c.errs[k]; err != nil {
			m[string(k)] = err.Error()
		}
	}
	return m
}

// unmetError is a condition that does not hold.
type unmetError struct {
	condition condition
	err       error
}

func (e *unmetError) Error() string { return fmt.Sprintf("%s: %v", e.condition, e.err) }
func (e *unmetError) Unwrap() error { return e.err }
