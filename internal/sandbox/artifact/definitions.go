// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"os"
	"path/filepath"
)

const (
	policiesModule    = "sigs.k8s.io/network-policy-api"
	policiesFile      = "policy.networking.k8s.io_clusternetworkpolicies.yaml"
	attachmentsModule = "github.com/k8snetworkplumbingwg/network-attachment-definition-client"
)

// definition is a manifest of CustomResourceDefinitions in a Go module that a module below build/
// requires. Nothing else of the module is built.
type definition struct{ Name, Folder, Module, File string }

// definitions are upstream's: those of ClusterNetworkPolicies in two channels (what is settled, and
// that with what may still change), and that of NetworkAttachmentDefinitions.
var definitions = []definition{
	{"standard", "netpolapi", policiesModule, "config/crd/standard/" + policiesFile},
	{"experimental", "netpolapi", policiesModule, "config/crd/experimental/" + policiesFile},
	{"attachments", "multus", attachmentsModule, "artifacts/networks-crd.yaml"},
}

func (c Cache) definitionsDir() string {
	return filepath.Join(c.Dir, "definitions-"+key(PoliciesVersion, MultusVersion, definitions))
}

// PolicyDefinition is the path of the manifest that defines ClusterNetworkPolicies: "standard" or
// "experimental".
func (c Cache) PolicyDefinition(channel string) string {
	return filepath.Join(c.definitionsDir(), channel+".yaml")
}

// AttachmentDefinition is the path of the manifest that defines NetworkAttachmentDefinitions.
func (c Cache) AttachmentDefinition() string {
	return filepath.Join(c.definitionsDir(), "attachments.yaml")
}

func (c Cache) definitions(ctx context.Context) error {
	return c.make(filepath.Base(c.definitionsDir()), "definitions of resources", func(dir string) error {
		source, err := c.source()
		if err != nil {
			return err
		}
		for _, d := range definitions {
			folder := filepath.Join(source, "build", d.Folder)
			if err := Run(ctx, folder, nil, "go", "mod", "download", d.Module); err != nil {
				return err
			}
			file, err := c.moduleFile(ctx, d.Folder, d.Module, d.File)
			if err != nil {
				return err
			}
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, d.Name+".yaml"), data, 0o644); err != nil {
				return err
			}
		}
		return nil
	})
}
