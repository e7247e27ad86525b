// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"coelan.io/coelan/internal/backend/ovn/names"
	"coelan.io/coelan/internal/backend/ovn/remote"
	"coelan.io/coelan/internal/controller"
	"coelan.io/coelan/internal/intent"
)

// ovnFlags are those of the backend, which have no meaning with the backend ovs.
type ovnFlags struct {
	backend, northbound, cluster       string
	certificate, privateKey, authority string
	serviceCIDRs, direct, policyMode   string
	snat, auditDenied                  bool
}

func (f *ovnFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.backend, "backend", "ovs",
		"what connects pods: ovs (each node's agent alone), ovn (OVN, whose northbound database the leader writes), "+
			"or neutron (OpenStack, whose Neutron the leader asks)")
	flags.StringVar(&f.northbound, "northbound", "",
		"servers of OVN's northbound database with commas between them, such as tcp:192.0.2.1:6641 or ssl:[2001:db8::1]:6641; "+
			"with the backend neutron, of the one that Neutron writes: without, there are no Services")
	flags.StringVar(&f.cluster, "cluster", "",
		"name of this cluster in OVN's northbound database, or in OpenStack, which tells what is its from what other clusters have")
	flags.StringVar(&f.certificate, "northbound-certificate", "", "file with the certificate for ssl:")
	flags.StringVar(&f.privateKey, "northbound-private-key", "", "file with the private key for ssl:")
	flags.StringVar(&f.authority, "northbound-authority", "", "file with the authority of the servers with ssl:")
	flags.StringVar(&f.serviceCIDRs, "service-cidrs", "",
		"with the backends ovn and neutron: prefixes of ClusterIPs beside those of the API, with commas between them")
	flags.BoolVar(&f.snat, "snat", true, "with the backend ovn: the agents' snat.enabled")
	flags.StringVar(&f.direct, "snat-exclude-cidrs", "", "with the backend ovn: the agents' snat.excludeCIDRs")
	flags.StringVar(&f.policyMode, "policy-mode", string(intent.EnforcedPolicies),
		"with the backends ovn and neutron: the agents' policy.mode, enforced or off")
	flags.BoolVar(&f.auditDenied, "audit-denied", false, "with the backend ovn: the agents' policy.auditDenied")
}

// options are nil for the backend ovs.
func (f *ovnFlags) options() (*controller.OVN, error) {
	switch f.backend {
	case "ovs":
		if f.northbound != "" {
			return nil, errors.New("--northbound has no meaning with --backend ovs")
		}
		return nil, nil //nolint:nilnil // without OVN there are no settings of it
	case "neutron":
		return nil, nil //nolint:nilnil // without OVN there are no settings of it
	case "ovn":
	default:
		return nil, fmt.Errorf("--backend: is %q, not ovs, ovn or neutron", f.backend)
	}
	o := &controller.OVN{AuditDenied: f.auditDenied}
	var err error
	if o.Northbound, o.TLS, err = f.servers(); err != nil {
		return nil, err
	}
	if len(o.Northbound) == 0 {
		return nil, errors.New("--northbound: the backend ovn needs the servers of OVN's northbound database")
	}
	if o.Cluster, o.SNAT, o.PolicyMode, err = f.shared(); err != nil {
		return nil, err
	}
	if o.ServiceCIDRs, err = controller.ParsePrefixes(f.serviceCIDRs); err != nil {
		return nil, fmt.Errorf("--service-cidrs: %w", err)
	}
	return o, nil
}

// servers are those of the northbound database, with files for TLS if some of them need these.
func (f *ovnFlags) servers() (remotes []string, files *remote.TLSFiles, err error) {
	remotes = split(f.northbound)
	secure := false
	for _, remote := range remotes {
		scheme, _, _ := strings.Cut(remote, ":")
		if scheme != "tcp" && scheme != "ssl" && scheme != "unix" {
			return nil, nil, fmt.Errorf("--northbound: %q does not begin with tcp:, ssl: or unix:", remote)
		}
		secure = secure || scheme == "ssl"
	}
	if !secure {
		return remotes, nil, nil
	}
	if f.certificate == "" || f.privateKey == "" || f.authority == "" {
		return nil, nil, errors.New("--northbound: ssl: needs --northbound-certificate, --northbound-private-key and " +
			"--northbound-authority")
	}
	files = &remote.TLSFiles{Certificate: f.certificate, PrivateKey: f.privateKey, Authority: f.authority}
	return remotes, files, nil
}

// shared are the settings that the backends ovn and neutron have.
func (f *ovnFlags) shared() (cluster names.Cluster, snat intent.SNAT, mode intent.PolicyMode, err error) {
	if cluster, err = names.ParseCluster(f.cluster); err != nil {
		return "", snat, "", fmt.Errorf("--cluster: %w", err)
	}
	snat.Enabled = f.snat
	if snat.Direct, err = controller.ParsePrefixes(f.direct); err != nil {
		return "", snat, "", fmt.Errorf("--snat-exclude-cidrs: %w", err)
	}
	mode = intent.PolicyMode(f.policyMode)
	if mode != intent.EnforcedPolicies && mode != intent.UnenforcedPolicies {
		return "", snat, "", fmt.Errorf("--policy-mode: is %q, not %s or %s", f.policyMode, intent.EnforcedPolicies,
			intent.UnenforcedPolicies)
	}
	return cluster, snat, mode, nil
}

func split(text string) (list []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}
