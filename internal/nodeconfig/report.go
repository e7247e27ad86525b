// SPDX-License-Identifier: Apache-2.0

package nodeconfig

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"coelan.io/coelan/api/v1alpha1"
)

// MaxMessage is how many bytes of a message a Report has, and maxReport how many a Report has that
// is read.
const (
	MaxMessage = 512
	maxReport  = 4096
)

// Report is the annotation coelan.io/network-config: what a node's agent says of its configuration.
type Report struct {
	// Applied is what the node runs with; nil: the ConfigMap alone.
	Applied *Applied `json:"applied,omitempty"`
	// Refused is what it does not run with, and why.
	Refused *Refused `json:"refused,omitempty"`
	// Problem is why no controller has told it which configuration holds.
	Problem string `json:"problem,omitempty"`
}

// Applied names a NodeNetworkConfig as it was at a time.
type Applied struct {
	Name       string    `json:"name"`
	UID        string    `json:"uid"`
	Generation int64     `json:"generation"`
	Time       time.Time `json:"time"`
}

// Refused is a NodeNetworkConfig that a node does not apply.
type Refused struct {
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	Message    string `json:"message"`
}

// Encode writes the annotation. Messages are cut; the same report has the same text.
func (r Report) Encode() (string, error) {
	r.Problem = cut(r.Problem)
	if r.Refused != nil {
		refused := *r.Refused
		refused.Message = cut(refused.Message)
		r.Refused = &refused
	}
	data, err := json.Marshal(r)
	return string(data), err
}

// cut leaves of a text what fits, in one line.
func cut(text string) string {
	text = strings.ReplaceAll(text, "\n", "; ")
	if len(text) <= MaxMessage {
		return text
	}
	text = text[:MaxMessage-len("…")]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + "…"
}

// ReportOf reads what a node says; what cannot be read says nothing.
func ReportOf(n *corev1.Node) Report {
	text := n.Annotations[v1alpha1.AnnotationNetworkConfig]
	var r Report
	if len(text) > maxReport || json.Unmarshal([]byte(text), &r) != nil {
		return Report{}
	}
	r.Problem = cut(r.Problem)
	if r.Refused != nil {
		r.Refused.Message = cut(r.Refused.Message)
	}
	return r
}
