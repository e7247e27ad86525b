// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"os"
	"path/filepath"
)

// ClusterNetworkPolicies are upstream's, of a module of their own: their definition in its two channels, and a suite of
// tests. Sandboxes know of them only if they are told to.

const policiesModule = "sigs.k8s.io/network-policy-api"

const policiesFile = "policy.networking.k8s.io_clusternetworkpolicies.yaml"

// policyChannels are upstream's: what is settled, and that with what may still change.
var policyChannels = []string{"standard", "experimental"}

func (c Cache) policiesDir() string {
	return filepath.Join(c.Dir, "policy-definitions-"+key(PoliciesVersion, policyChannels, policiesFile))
}

// PolicyDefinition is the path of the manifest that defines ClusterNetworkPolicies: "standard" or "experimental".
func (c Cache) PolicyDefinition(channel string) string {
	return filepath.Join(c.policiesDir(), channel+".yaml")
}

func (c Cache) policies(ctx context.Context) error {
	return c.make(filepath.Base(c.policiesDir()), "definitions of ClusterNetworkPolicies", func(dir string) error {
		source, err := c.source()
		if err != nil {
			return err
		}
		// No program is built of it here, which would have brought it.
		if err := Run(ctx, filepath.Join(source, "build/netpolapi"), nil, "go", "mod", "download", policiesModule); err != nil {
			return err
		}
		for _, channel := range policyChannels {
			file, err := c.moduleFile(ctx, "netpolapi", policiesModule, filepath.Join("config/crd", channel, policiesFile))
			if err != nil {
				return err
			}
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, channel+".yaml"), data, 0o644); err != nil {
				return err
			}
		}
		return nil
	})
}
