// SPDX-License-Identifier: Apache-2.0

// Package controller runs the reconcilers of decisions that must be the same for the whole cluster.
// One replica, the leader, decides and writes to the Kubernetes API; the others have the same
// objects cached and wait. All state is in the API: reconcilers compare actual with desired state
// and can be repeated at any time. The decisions are in packages networks, loadbalancers and
// policies; this package makes the manager that they run in.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"coelan.io/coelan/internal/allocate"
	"coelan.io/coelan/internal/apiaccess"
	"coelan.io/coelan/internal/backend/neutron/cloud"
	"coelan.io/coelan/internal/backend/neutron/compile"
	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/remote"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/controller/networks"
	"coelan.io/coelan/internal/controller/neutron/balancers"
	"coelan.io/coelan/internal/controller/policies"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/metricsaccess"
	"coelan.io/coelan/internal/translate"
)

// Options are what a controller is made with.
type Options struct {
	REST *rest.Config
	Log  *slog.Logger
	// Access dials the API server; nil: REST's address is dialed.
	Access *apiaccess.Access

	// Mapping has to be that of the agents.
	Mapping config.Mapping
	// NamespaceSubnets are the pools that each namespace has the subnets of its Network of, in the
	// mapping by namespace: at most one of each family; none: Networks are of the nodes' podCIDRs.
	NamespaceSubnets []intent.SubnetPool
	// ExternalIPs are the only ones that Services have, as the agents' services.externalIPs.
	ExternalIPs []netip.Prefix
	// VNIs to allocate from.
	VNIs allocate.Range
	// MetricsBindAddress serves /healthz, /readyz and /metrics; "0": nothing.
	MetricsBindAddress string
	// MetricsAccess says which clients may read /metrics.
	MetricsAccess metricsaccess.Access

	LeaderElect bool
	// LeaderElectionNamespace of the Lease; empty: the pod's own.
	LeaderElectionNamespace string

	// UsageInterval is the least time between two writes of how many addresses of a Network are
	// used: every node watches Networks.
	UsageInterval time.Duration

	// PolicyBindAddress serves agents what they need to know of policies; "0": no agent is served.
	PolicyBindAddress string
	// PolicyTokenFile has the token that this replica shows the others, to learn on how many nodes
	// a policy is in effect; empty: it does not ask them.
	PolicyTokenFile string
	// PolicyInterval is the least time between two looks at the status of policies.
	PolicyInterval time.Duration
	// Policies computes and serves the views of nodes; nil: a new one does.
	Policies *policies.Distribution

	// RESTCONFBindAddress serves RESTCONF by HTTPS; "0": nothing.
	RESTCONFBindAddress string

	// Socket is the unix socket of the diagnostics; empty: none.
	Socket string

	// OVN is what the backend ovn needs; nil: the agents have the backend ovs.
	OVN *OVN
	// Neutron is what the backend neutron needs; nil: the agents have another one.
	Neutron *Neutron
}

// Neutron are the settings of the backend neutron.
type Neutron struct {
	Cloud cloud.Access
	// Spare is how many ports each node has ready for pods; 0: none.
	Spare int
	// Projects are the projects of OpenStack that namespaces may ask for; it is not nil.
	Projects translate.Projects
	// SubnetPools are the ids of subnet pools of OpenStack that NamespaceSubnets are a part of.
	SubnetPools []string
	// Octavia is what load balancers of Octavia need.
	Octavia balancers.Settings
	// Northbound are the servers of the northbound database that Neutron writes, TLS files for
	// those with ssl:; none: there are no Services.
	Northbound []string
	TLS        *remote.TLSFiles
	// Cluster tells this cluster's resources from those of other clusters.
	Cluster names.Cluster
	// ServiceCIDRs are prefixes of ClusterIPs beside those of the API.
	ServiceCIDRs []netip.Prefix
	// SNAT and PolicyMode have to be those of the agents.
	SNAT       intent.SNAT
	PolicyMode intent.PolicyMode
}

// OVN are the settings of the backend ovn. But for the first ones they have to be those of the
// agents.
type OVN struct {
	// Northbound are the servers of the northbound database.
	Northbound []string
	// Cluster tells this cluster's rows from those of other clusters.
	Cluster names.Cluster
	// TLS are files for servers with ssl:; nil: there are none.
	TLS *remote.TLSFiles
	// ServiceCIDRs are prefixes of ClusterIPs beside those of the API.
	ServiceCIDRs []netip.Prefix
	SNAT         intent.SNAT
	PolicyMode   intent.PolicyMode
	AuditDenied  bool
}

// serviceCIDRs are the prefixes of ClusterIPs that settings name.
func (o Options) serviceCIDRs() []netip.Prefix {
	switch {
	case o.OVN != nil:
		return o.OVN.ServiceCIDRs
	case o.Neutron != nil:
		return o.Neutron.ServiceCIDRs
	}
	return nil
}

// taken reads what subnets of namespaces must not overlap beside what the API has: subnets of the
// same subnet pools of OpenStack.
func (o Options) taken() func(context.Context) ([]netip.Prefix, error) {
	if o.Neutron == nil || len(o.Neutron.SubnetPools) == 0 {
		return networks.NoneTaken
	}
	given := cloud.NewSubnetPools(o.Neutron.Cloud, o.Neutron.SubnetPools)
	return func(ctx context.Context) ([]netip.Prefix, error) {
		pools, taken, err := given.Read(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range compile.Give(o.NamespaceSubnets, o.Neutron.SubnetPools, pools).Problems {
			return nil, errors.New(p.Message)
		}
		return taken, nil
	}
}

// CheckNamespaceSubnets says why pools cannot be used with the other settings.
func (o Options) CheckNamespaceSubnets() error {
	if len(o.NamespaceSubnets) > 0 && o.Mapping != config.MapNamespace {
		return fmt.Errorf("has no meaning with --mapping %s: it is for --mapping %s", o.Mapping, config.MapNamespace)
	}
	if o.Neutron != nil && len(o.Neutron.SubnetPools) > 0 && len(o.NamespaceSubnets) == 0 {
		return errors.New("is needed with --neutron-subnet-pools: which part of the pools do namespaces have?")
	}
	for _, pool := range o.NamespaceSubnets {
		for _, p := range o.serviceCIDRs() {
			if p.Overlaps(pool.Prefix) {
				return fmt.Errorf("the pool %s overlaps %s of --service-cidrs: Services have addresses there", pool, p)
			}
		}
	}
	return nil
}

// DefaultSocket is where the coelan command expects the diagnostics, in the controller's container.
const DefaultSocket = "/run/coelan/controller.sock"

// DefaultOptions lack REST and Log.
func DefaultOptions() Options {
	return Options{
		Mapping: config.MapFlat, VNIs: allocate.DefaultVNIs, MetricsBindAddress: "127.0.0.1:10361",
		MetricsAccess: metricsaccess.Authorized,
		LeaderElect:   true, UsageInterval: 5 * time.Second,
		PolicyBindAddress: ":10363", PolicyTokenFile: "/var/run/secrets/coelan-controller/token",
		PolicyInterval:      time.Second,
		RESTCONFBindAddress: "0",
		Socket:              DefaultSocket,
	}
}

// maxVNI is what 24 bits hold.
const maxVNI = 1<<24 - 1

// ParseRange reads first-last.
func ParseRange(text string) (allocate.Range, error) {
	first, last, _ := strings.Cut(text, "-")
	from, err1 := strconv.ParseInt(first, 10, 32)
	to, err2 := strconv.ParseInt(last, 10, 32)
	if err1 != nil || err2 != nil || from < 2 || to < from || to > maxVNI {
		return allocate.Range{}, fmt.Errorf("is %q, not first-last within 2-%d", text, maxVNI)
	}
	return allocate.Range{First: int32(from), Last: int32(to)}, nil
}

// ParsePrefixes reads prefixes with commas between them.
func ParsePrefixes(text string) ([]netip.Prefix, error) {
	var list []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		p, err := netip.ParsePrefix(part)
		if err != nil || p != p.Masked() || p.Addr().Is4In6() {
			return nil, fmt.Errorf("%q is not a CIDR without bits set after its length", part)
		}
		list = append(list, p)
	}
	return list, nil
}
