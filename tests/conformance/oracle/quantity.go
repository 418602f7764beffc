package main

import (
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/json"
)

type quantityQuestion struct {
	ID    string `json:"id"`
	Text  string `json:"text"`
	Other string `json:"other"`
}

type quantityAnswer struct {
	ID     string `json:"id"`
	Result string `json:"result"`
	// Canonical is the text that the API writes; Sum and Compare are with the other quantity, if any.
	Canonical string `json:"canonical,omitempty"`
	Format    string `json:"format,omitempty"`
	Value     int64  `json:"value"`
	Milli     int64  `json:"milli"`
	Sum       string `json:"sum,omitempty"`
	Compare   int    `json:"compare"`
	Message   string `json:"message,omitempty"`
	Version   string `json:"version"`
}

func answerQuantity(line []byte) any {
	var question quantityQuestion
	answer := quantityAnswer{Version: upstreamVersion}
	if err := json.Unmarshal(line, &question); err != nil {
		answer.Result, answer.Message = "bad_question", err.Error()
		return answer
	}
	answer.ID = question.ID
	quantity, err := resource.ParseQuantity(question.Text)
	if err != nil {
		answer.Result, answer.Message = "error", err.Error()
		return answer
	}
	answer.Result = "ok"
	// The parser keeps the text it was given; what the API writes is what is left after a change.
	fresh := quantity.DeepCopy()
	fresh.Neg()
	fresh.Neg()
	answer.Canonical, answer.Format = fresh.String(), string(quantity.Format)
	answer.Value, answer.Milli = quantity.Value(), quantity.MilliValue()
	if other, err := resource.ParseQuantity(question.Other); question.Other != "" && err == nil {
		answer.Compare = quantity.Cmp(other)
		sum := quantity.DeepCopy()
		sum.Add(other)
		answer.Sum = sum.String()
	}
	return answer
}
