// SPDX-License-Identifier: Apache-2.0

// Package client is the agent's side of the distribution of policies. It holds a stream to one
// controller and moves to another when that one fails; the last state stays in effect meanwhile,
// and is on disk for the next start.
package client

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"coelan.io/coelan/internal/policy"
	"coelan.io/coelan/internal/policystream/wire"
	"coelan.io/coelan/internal/trigger"
)

// Options are what a Client is made with.
type Options struct {
	// Node is this one's name, for messages: which view it gets, its token decides.
	Node string
	// Namespace that the controllers are in.
	Namespace string
	// Controllers are where they are.
	Controllers Controllers
	// Token is shown to them.
	Token Token
	// File is where what is known is kept; empty: nowhere.
	File string
	Log  *slog.Logger
	// OnChange is called after each change; of one that is empty, too, when a stream has begun.
	// Calls do not overlap.
	OnChange func(Change)
	// Beside makes further calls on a connection, until ctx ends; nil: there are none.
	Beside Calls
}

// Client follows the policies of one node.
type Client struct {
	Options
	// save is another one in tests of full disks.
	save     func(path string, c content) error
	patience time.Duration

	dirty trigger.Trigger // something has to be saved
	news  trigger.Trigger // a controller has to be told something

	mu     sync.Mutex
	state  *state
	basis  policy.Basis // that the state was computed from, as far as it is known
	status Status
	// attached are pods that have not been sent to a controller, at most maxAttached.
	attached []policy.Attachment
	// refused is what the switch refuses. Each controller gets all of it.
	refused []policy.Refusal
	lost    bool // the file is of no use, and has to be written when there is something to write
}

// Status is how it goes.
type Status struct {
	Connected bool `json:"connected"`
	// The address of the one that it is connected to, or was last.
	Controller string    `json:"controller,omitempty"`
	Since      time.Time `json:"since"` // of Connected
	// Complete says that what is known is what a controller has said since the start,
	// and not only remembered.
	Complete   bool   `json:"complete"`
	Version    uint64 `json:"version"`    // of the last Change
	Programmed uint64 `json:"programmed"` // of the last Change that is in effect
	Rules      int    `json:"rules"`
	Subjects   int    `json:"subjects"`
	Peers      int    `json:"peers"`
	// Unknown is how many items a newer release wrote that this one does not understand: what they
	// are about is closed.
	Unknown int `json:"unknown,omitempty"`
	// LastError is why there is no stream; empty while there is one.
	LastError string `json:"lastError,omitempty"`
	// SaveError is why what is known is not on disk.
	SaveError string `json:"saveError,omitempty"`

	Streams uint64 `json:"streams"` // that have begun
	// streams that ended because of what a controller sent.
	InvalidUpdates uint64 `json:"invalidUpdates"`
	SaveFailures   uint64 `json:"saveFailures"` // since the start
	Received       uint64 `json:"received"`     // items, since the start
}

// New is a client that knows nothing. Call Load, then Run.
func New(o Options) *Client {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.OnChange == nil {
		o.OnChange = func(Change) {}
	}
	return &Client{
		Options: o, save: save, patience: patience, dirty: trigger.New(), news: trigger.New(), state: newState(),
		status: Status{Since: time.Now()},
	}
}

// Load reads what was known when the agent ran last. With a file that cannot be read nothing is
// known, and Ports stay closed until a controller is reached. OnChange is not called for it.
func (c *Client) Load() Change {
	if c.File == "" {
		return Change{}
	}
	r, err := load(c.File)
	c.mu.Lock()
	defer c.mu.Unlock()
	var change Change
	if err == nil {
		change, err = c.state.apply(r)
	}
	if err == nil {
		c.basis = r.basis
	}
	if err != nil {
		c.lost = true
		c.Log.Error("cannot read the policies on disk: pods stay blocked until a controller is reached", "err", err)
		return Change{}
	}
	c.next(&change)
	c.Log.Info("loaded policies from disk", "rules", c.status.Rules, "subjects", c.status.Subjects, "peers",
		c.status.Peers)
	return change
}

// next gives a change its version; c.mu is held.
func (c *Client) next(change *Change) {
	c.status.Version++
	change.Version = c.status.Version
	counts := c.state.counts
	c.status.Rules, c.status.Subjects, c.status.Peers = counts[wire.Key_RULE], counts[wire.Key_SUBJECT],
		counts[wire.Key_PEER]
	if before := c.status.Unknown; before != len(c.state.unknown) {
		c.status.Unknown = len(c.state.unknown)
		c.reportUnknown()
	}
}

// reportUnknown logs what is not understood; c.mu is held.
func (c *Client) reportUnknown() {
	if len(c.state.unknown) == 0 {
		c.Log.Info("no rule of the controller is unknown any more")
		return
	}
	id := slices.MinFunc(slices.Collect(maps.Keys(c.state.unknown)), func(a, b wire.ID) int {
		return strings.Compare(a.String(), b.String())
	})
	c.Log.Error("a newer controller sent unknown rules: the pods that they select are blocked; upgrade the agent",
		"items", len(c.state.unknown), "first", id, "err", c.state.unknown[id])
}

// Programmed says that the change of that version is in effect, and all before it.
func (c *Client) Programmed(version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version > c.status.Programmed && version <= c.status.Version {
		c.status.Programmed = version
		c.news.Fire()
	}
}

// maxAttached is how many pods are kept for a controller to come. The API tells of the others.
const maxAttached = 1000

// Attached sends a pod that has just been attached to a controller.
func (c *Client) Attached(a policy.Attachment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.attached) < maxAttached {
		c.attached = append(c.attached, a)
		c.news.Fire()
	}
}

// Refused sends a controller all objects that the switch refuses now.
func (c *Client) Refused(list []policy.Refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.refused, list) {
		c.refused = list
		c.news.Fire()
	}
}

func (c *Client) refusals() []policy.Refusal {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

func (c *Client) takeAttached() []policy.Attachment {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.attached
	c.attached = nil
	return list
}

// Status is how it goes now.
func (c *Client) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

func (c *Client) update(change func(*Status)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.status)
}
