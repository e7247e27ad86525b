// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"coelan.io/coelan/api/v1alpha1"
)

// NewScheme returns one with all types that the controller reads and writes.
func NewScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	// They fail only for two types of one name.
	must(clientgoscheme.AddToScheme(s))
	must(v1alpha1.AddToScheme(s))
	must(apiextensionsv1.AddToScheme(s))
	return s
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
