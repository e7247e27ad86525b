// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"

	"coelan.io/coelan/api/v1alpha1"
)

// The resources of custom kinds, as paths have them.
const (
	Networks    = "networks"
	Routers     = "routers"
	Blocks      = "addressblocks"
	Ports       = "ports"
	Pools       = "loadbalancerpools"
	FloatingIPs = "floatingips"
	Egresses    = "egresses"
	Definitions = "network-attachment-definitions"
)

// definitionVersion is the group and version of Definition.
var definitionVersion = schema.GroupVersion{Group: "k8s.cni.cncf.io", Version: "v1"}

// Definition is a NetworkAttachmentDefinition of the network plumbing working group, as far
// as it is read.
type Definition struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec DefinitionSpec `json:"spec"`
}

// DefinitionSpec holds the CNI configuration, or configuration list, as JSON.
type DefinitionSpec struct {
	Config string `json:"config"`
}

// DefinitionList is a list of Definitions.
type DefinitionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Definition `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (d *Definition) DeepCopyObject() runtime.Object {
	c := *d
	d.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *DefinitionList) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = nil
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*Definition))
	}
	return &c
}

// customScheme knows the kinds of coelan.io and Definitions.
var customScheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(s))
	s.AddKnownTypeWithName(definitionVersion.WithKind("NetworkAttachmentDefinition"), &Definition{})
	s.AddKnownTypeWithName(definitionVersion.WithKind("NetworkAttachmentDefinitionList"), &DefinitionList{})
	metav1.AddToGroupVersion(s, definitionVersion)
	return s
}()

// customClient speaks JSON with the API about one group.
func customClient(
	config *rest.Config, client *http.Client, version schema.GroupVersion,
) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = "/apis", &version
	config.AcceptContentTypes, config.ContentType = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(customScheme).WithoutConversion()
	api, err := rest.RESTClientForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("kubernetes client of %s: %w", version, err)
	}
	return api, nil
}
