// SPDX-License-Identifier: Apache-2.0

// Package controller decides what has to be decided once for the whole cluster and writes it to the Kubernetes API. One
// replica, the leader, does so; every other one has the same objects in its memory and waits. All of its work is found in
// the API: what is there is compared with what should be, and may be repeated at any time.
package controller

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"coelan.io/coelan/internal/policystream/server"
	"coelan.io/coelan/internal/translate"
)

// Mapping says which Network a pod joins that no Network selects.
type Mapping string

// The mappings.
const (
	Flat        Mapping = "flat"      // the default one
	ByNamespace Mapping = "namespace" // one of the pod's namespace and node
)

// MarshalText is for flags.
func (m Mapping) MarshalText() ([]byte, error) { return []byte(m), nil }

// UnmarshalText takes the known ones only.
func (m *Mapping) UnmarshalText(text []byte) error {
	switch got := Mapping(text); got {
	case Flat, ByNamespace:
		*m = got
		return nil
	}
	return fmt.Errorf("is %q, not %s or %s", text, Flat, ByNamespace)
}

// Options are what a controller is made with.
type Options struct {
	REST *rest.Config
	Log  *slog.Logger

	Mapping Mapping
	// VNIs to allocate from.
	VNIs translate.Range
	// MetricsBindAddress serves /healthz, /readyz and /metrics; "0": nothing.
	MetricsBindAddress string

	LeaderElect bool
	// LeaderElectionNamespace of the Lease; empty: the pod's own.
	LeaderElectionNamespace string

	// UsageInterval is the least time between two writes of how many addresses of a Network are used: every node
	// watches Networks.
	UsageInterval time.Duration

	// PolicyBindAddress serves agents what they need to know of policies; "0": nobody.
	PolicyBindAddress string
	// PolicyTokenFile has the token that this replica shows the others, to learn on how many nodes a policy is in effect; empty: it
	// does not ask them.
	PolicyTokenFile string
	// PolicyInterval is the least time between two looks at the status of policies.
	PolicyInterval time.Duration
	// Policies is the Hub to use; nil: a new one.
	Policies *server.Hub

	// Socket is the unix socket of the diagnostics; empty: none.
	Socket string
}

// DefaultSocket is where the coelan command expects the diagnostics, in the controller's container.
const DefaultSocket = "/run/coelan/controller.sock"

// DefaultOptions lack REST and Log.
func DefaultOptions() Options {
	return Options{
		Mapping: Flat, VNIs: translate.DefaultVNIs, MetricsBindAddress: "127.0.0.1:10361",
		LeaderElect: true, UsageInterval: 5 * time.Second,
		PolicyBindAddress: ":10363", PolicyTokenFile: "/var/run/secrets/coelan-controller/token", PolicyInterval: time.Second,
		Socket: DefaultSocket,
	}
}

// maxVNI is what 24 bits hold.
const maxVNI = 1<<24 - 1

// ParseRange reads first-last.
func ParseRange(text string) (translate.Range, error) {
	first, last, _ := strings.Cut(text, "-")
	from, err1 := strconv.ParseInt(first, 10, 32)
	to, err2 := strconv.ParseInt(last, 10, 32)
	if err1 != nil || err2 != nil || from < 2 || to < from || to > maxVNI {
		return translate.Range{}, fmt.Errorf("is %q, not first-last within 2-%d", text, maxVNI)
	}
	return translate.Range{First: int32(from), Last: int32(to)}, nil
}
