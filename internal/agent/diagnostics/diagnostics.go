// SPDX-License-Identifier: Apache-2.0

// Package diagnostics answers the coelan command about one node: what the agent knows, what is not
// as it should be, and which way a packet takes.
package diagnostics

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"coelan.io/coelan/internal/agent/apicache"
	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/cni"
	"coelan.io/coelan/internal/cni/podnet"
	"coelan.io/coelan/internal/conditions"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/keymutex"
	"coelan.io/coelan/internal/localapi"
	"coelan.io/coelan/internal/policystream/client"
)

// Backend is what brings intent about on this node.
type Backend interface {
	// Report adds the backend's part to an agent's status.
	Report(s *agentapi.Status)
	// Ports are all attachments, with what the backend has of each.
	Ports(ctx context.Context) ([]agentapi.PortInfo, error)
	// Findings adds to a check what is not as intent and attachments say, what could not be
	// compared, and how many ports there are.
	Findings(ctx context.Context, c *agentapi.Check) error
	// ForeignAttached are the attachments on bridges of external controllers.
	ForeignAttached(ctx context.Context) ([]attachment.Attachment, error)
	// ServiceProblems are what of Services is not in effect, by namespace/name.
	ServiceProblems() map[string][]string
	// Uplinks are the numbers of physical networks, by their names.
	Uplinks() map[string]uint32
	// PolicyStats are what rules have decided.
	PolicyStats(ctx context.Context) ([]agentapi.PolicyStat, error)
	// FloatingIPs are those of this node's Ports, Gateways the addresses that the node has as a
	// gateway of Routers, EgressAddresses all of the cluster, and NextHops the stations on external
	// Networks that the node knows or looks for.
	FloatingIPs() []agentapi.FloatingIPInfo
	Gateways(ctx context.Context) ([]agentapi.GatewayInfo, error)
	EgressAddresses() []agentapi.EgressInfo
	NextHops() []agentapi.NextHop
	// Trace follows a packet. A *backend.BadRequestError says what is wrong with the question.
	Trace(ctx context.Context, r agentapi.TraceRequest) (agentapi.Trace, error)
}

// Links are the pods' interfaces. *podnet.Plumber is one.
type Links interface {
	Existing() (map[string]bool, error)
	Gone(netns string) bool
	Check(i podnet.Interface) error
}

// Services tells what is wrong with Services.
type Services interface {
	Problems() []string
	ServiceProblems() map[types.NamespacedName][]string
}

// Options are what Diagnostics work with. All are needed, but for Policies and Configuration.
type Options struct {
	Node       string
	Since      time.Time // the agent's start
	Config     config.Config
	Intent     *intent.Store
	Store      *attachment.Store
	View       *apicache.View
	Links      Links
	NodeSource cni.NodeSource
	Interfaces *keymutex.Mutex
	Conditions *conditions.Set
	Backend    Backend
	Services   Services
	// Problems are values in objects that were left out.
	Problems func() []string
	// Announced are the addresses of load balancers that this node answers for.
	Announced func() []netip.Addr
	// Policies is the state of the stream of policies; nil: they are not enforced.
	Policies func() client.Status
	// Configuration is the NodeNetworkConfig that holds; nil: none can.
	Configuration func() agentapi.ConfigurationStatus
}

// Diagnostics answer for one node.
type Diagnostics struct{ Options }

// New makes Diagnostics.
func New(o Options) *Diagnostics { return &Diagnostics{o} }

// Handler serves the answers on the agent's socket.
func (d *Diagnostics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { localapi.Answer(w, d.status()) })
	mux.HandleFunc("GET /v1/ports", func(w http.ResponseWriter, r *http.Request) {
		reply(w)(d.Backend.Ports(r.Context()))
	})
	mux.HandleFunc("GET /v1/networks", func(w http.ResponseWriter, _ *http.Request) {
		localapi.Answer(w, d.networks())
	})
	mux.HandleFunc("GET /v1/routers", func(w http.ResponseWriter, _ *http.Request) { localapi.Answer(w, d.routers()) })
	mux.HandleFunc("GET /v1/services", func(w http.ResponseWriter, _ *http.Request) {
		localapi.Answer(w, d.serviceList())
	})
	mux.HandleFunc("GET /v1/policystats", func(w http.ResponseWriter, r *http.Request) {
		reply(w)(d.Backend.PolicyStats(r.Context()))
	})
	mux.HandleFunc("GET /v1/floatingips", func(w http.ResponseWriter, _ *http.Request) {
		localapi.Answer(w, d.Backend.FloatingIPs())
	})
	mux.HandleFunc("GET /v1/gateways", func(w http.ResponseWriter, r *http.Request) {
		reply(w)(d.Backend.Gateways(r.Context()))
	})
	mux.HandleFunc("GET /v1/egress", func(w http.ResponseWriter, _ *http.Request) {
		localapi.Answer(w, d.Backend.EgressAddresses())
	})
	mux.HandleFunc("GET /v1/nexthops", func(w http.ResponseWriter, _ *http.Request) {
		localapi.Answer(w, d.Backend.NextHops())
	})
	mux.HandleFunc("GET /v1/check", func(w http.ResponseWriter, r *http.Request) { reply(w)(d.check(r.Context())) })
	mux.HandleFunc("POST /v1/trace", d.handleTrace)
	return mux
}

// maxRequest bounds the body of a question.
const maxRequest = 1 << 16

func (d *Diagnostics) handleTrace(w http.ResponseWriter, r *http.Request) {
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	body.DisallowUnknownFields()
	var req agentapi.TraceRequest
	if err := body.Decode(&req); err != nil {
		http.Error(w, "packet: "+err.Error(), http.StatusBadRequest)
		return
	}
	reply(w)(d.Backend.Trace(r.Context(), req))
}

// reply returns what writes an answer or its error.
func reply(w http.ResponseWriter) func(v any, err error) {
	return func(v any, err error) {
		switch {
		case errors.As(err, new(*backend.BadRequestError)):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			localapi.Answer(w, v)
		}
	}
}
